# SPDX-License-Identifier: Apache-2.0
# A program that links tessera::recipes uses the library's engines, checkpoints and weight files, on the CPU and on GPUs. It
# compiles no code of them and includes neither nlohmann-json nor xxHash.
# cmake -DCOMPILER=... -DNM=... -DINCLUDE=... -DEIGEN=... -DFOLDER=... -P linked_trainer.cmake
cmake_minimum_required(VERSION 3.25)
file(MAKE_DIRECTORY "${FOLDER}")
set(engines "Engine<" "Executor<" "ParameterStore<" "StepMemory<" "detail::Generator::" "make_plan")
set(files "nlohmann::" "XXH" "Checkpoint(Writer|Reader)" "(Safetensors[a-zA-Z]+|LlmcFile|AtomicFile)::" "WeightsHash::[a-z]"
    "(ModelWeights|WeightsWriter|ModelFolderWriter|Adapter[a-zA-Z]+|Checkpoints|AsyncCheckpoint|HubConfig)::[a-z]"
    "v0::(read_checkpoint|save_checkpoint|resume|weights_files|write_file|hash_of|merging)[[(]")
foreach(place Cpu Cuda)
  file(WRITE "${FOLDER}/${place}.cpp" "#include <tessera/checkpoint.hpp>
#include <tessera/io/adapter.hpp>
#include <tessera/io/hash.hpp>
#include <tessera/io/model_folder.hpp>
#include <tessera/io/model_weights.hpp>
namespace ts = tessera;
double loss(ts::Batch const& batch, std::filesystem::path const& folder) {
  ts::Trainer<ts::Gpt2, ts::On<ts::${place}>, ts::ZeroStage<2>> trainer({}, ts::comm::Comm());
  auto const units = trainer.model().units({1, 1});
  trainer.fill(ts::ModelWeights::open(folder, units, ts::gpt2_weight_names()).source());
  ts::AdapterWeights const adapter = ts::AdapterWeights::open(folder, units);
  ts::Checkpoints checkpoints(folder, 2);
  checkpoints.lock();
  ts::AsyncCheckpoint beside;
  checkpoints.save(trainer, beside);
  beside.wait();
  ts::save_checkpoint(trainer, folder, {.notes = \"{}\"});
  if (ts::read_checkpoint(folder).step != ts::resume(trainer, folder).step) return 0;
  ts::WeightsWriter weights(folder, units);
  ts::ModelFolderWriter model(folder, units, ts::hub_config_text(ts::read_hub_config(folder).source, {}));
  ts::AdapterWriter adapters(folder, units, adapter.options(), {}, {});
  trainer.collect_pieces(ts::merging(units, weights.sink()));
  trainer.collect_pieces(model.sink());
  trainer.collect_pieces(adapters.sink());
  weights.commit();
  model.commit();
  adapters.commit();
  ts::write_file(folder, ts::WeightsHash().digest());
  return trainer.step(batch).get().loss;
}
")
  execute_process(COMMAND "${COMPILER}" -std=c++20 -O0 -DTESSERA_RECIPES_LINKED -DTESSERA_RECIPES_CUDA "-I${INCLUDE}"
                          -isystem "${EIGEN}" -MD -MF "${FOLDER}/${place}.d" -c "${FOLDER}/${place}.cpp"
                          -o "${FOLDER}/${place}.o"
                  RESULT_VARIABLE status ERROR_VARIABLE errors)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "a linked trainer on ${place} does not compile:\n${errors}")
  endif()
  file(STRINGS "${FOLDER}/${place}.d" included REGEX "/(nlohmann/|xxhash\\.h)")
  if(included)
    message(FATAL_ERROR "a linked trainer on ${place} includes ${included}")
  endif()
  execute_process(COMMAND "${NM}" -C "${FOLDER}/${place}.o" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  foreach(taken "make_engine<tessera::v0::${place}, float>" "v0::resume" "ModelWeights::open")
    if(NOT symbols MATCHES " U [^\n]*${taken}")
      message(FATAL_ERROR "a linked trainer on ${place} does not take ${taken} from the library")
    endif()
  endforeach()
  foreach(compiled ${engines} ${files})
    if(symbols MATCHES "\n[0-9a-f]+ [TWtu] ([^\n]*${compiled}[^\n]*)")
      message(FATAL_ERROR "a linked trainer on ${place} compiles ${CMAKE_MATCH_1}")
    endif()
  endforeach()
endforeach()
