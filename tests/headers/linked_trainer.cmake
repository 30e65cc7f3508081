# SPDX-License-Identifier: Apache-2.0
# A trainer of a program that links tessera::recipes takes its engine from there, for GPUs too, and compiles no code of
# engines.
# cmake -DCOMPILER=... -DNM=... -DINCLUDE=... -DEIGEN=... -DFOLDER=... -P linked_trainer.cmake
cmake_minimum_required(VERSION 3.25)
file(MAKE_DIRECTORY "${FOLDER}")
foreach(place Cpu Cuda)
  file(WRITE "${FOLDER}/${place}.cpp" "#include <tessera/tessera.hpp>
double loss(tessera::Batch const& batch) {
  tessera::Trainer<tessera::Gpt2, tessera::On<tessera::${place}>, tessera::ZeroStage<2>> trainer({}, tessera::comm::Comm());
  return trainer.step(batch).get().loss;
}
")
  execute_process(COMMAND "${COMPILER}" -std=c++20 -O0 -DTESSERA_RECIPES_LINKED -DTESSERA_RECIPES_CUDA "-I${INCLUDE}"
                          -isystem "${EIGEN}" -c "${FOLDER}/${place}.cpp" -o "${FOLDER}/${place}.o"
                  RESULT_VARIABLE status ERROR_VARIABLE errors)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "a linked trainer on ${place} does not compile:\n${errors}")
  endif()
  execute_process(COMMAND "${NM}" -C "${FOLDER}/${place}.o" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  if(NOT symbols MATCHES " U [^\n]*make_engine<tessera::v0::${place}, float>")
    message(FATAL_ERROR "a linked trainer on ${place} does not take its engine from the library")
  endif()
  foreach(engine "Engine<" "Executor<" "ParameterStore<" "StepMemory<" "detail::Generator::" "make_plan")
    if(symbols MATCHES "\n[0-9a-f]+ [TWtu] [^\n]*${engine}")
      message(FATAL_ERROR "a linked trainer on ${place} compiles ${engine}")
    endif()
  endforeach()
endforeach()
