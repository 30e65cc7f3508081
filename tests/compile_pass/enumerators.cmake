# SPDX-License-Identifier: Apache-2.0
# cmake -DCOMPILER=<C++ compiler> -DROOT=<source folder> -DEIGEN=<folder> -DWORK=<folder> [-DFLAGS=<flags>]
#       -P enumerators.cmake
# Adds an enumerator to each enumeration below, compiles a program, and expects a warning from each listed header.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${WORK}")

function(one_more header enumeration)
  set(source "${WORK}/include/tessera/${header}")
  if(NOT EXISTS "${source}")
    file(READ "${ROOT}/include/tessera/${header}" text)
  else()
    file(READ "${source}" text)
  endif()
  string(REGEX REPLACE "(enum class ${enumeration}[^{]*{)" "\\1 one_more," changed "${text}")
  if(changed STREQUAL text)
    message(FATAL_ERROR "${header} has no enum class ${enumeration}")
  endif()
  file(WRITE "${source}" "${changed}")
endfunction()

one_more(backend/operations.hpp Activation)
one_more(optim/schedule.hpp RateShape)
one_more(data/order.hpp Order)
one_more(data/token_file.hpp TokenFormat)
one_more(core/dtype.hpp DType)
one_more(nn/model.hpp Kind)
foreach(slot Sharding LossScaleKind RecomputeKind ReductionKind CommunicationKind CaptureKind AttentionKind)
  one_more(policy/table.hpp ${slot})
endforeach()
one_more(comm/request.hpp Move)
foreach(schedule Group BufferKind)
  one_more(plan/schedule.hpp ${schedule})
endforeach()
set(asking
  backend/operations.hpp backend/cpu/activation.hpp optim/schedule.hpp optim/loss_scale.hpp data/order.hpp
  data/token_file.hpp core/dtype.hpp comm/threads.hpp comm/communicator.hpp io/safetensors_header.hpp nn/init.hpp ops/attention.hpp
  policy/table.hpp plan/step_plan.hpp plan/work_order.hpp plan/report.hpp
  core/numbers.hpp)

file(WRITE "${WORK}/program.cpp" "#include <tessera/tessera.hpp>\n#include <tessera/checkpoint.hpp>
void train(tessera::Gpt2 const& model, tessera::Batch const& batch) {
  tessera::Trainer<tessera::Gpt2> trainer(model, tessera::comm::Comm());
  trainer.step(batch);
  tessera::save_checkpoint(trainer, \"folder\");
  tessera::resume(trainer, \"folder\");
}\n")
execute_process(COMMAND ${COMPILER} ${FLAGS} -std=c++20 -fsyntax-only -Wswitch "-I${WORK}/include" "-I${ROOT}/include"
    -isystem "${EIGEN}" "${WORK}/program.cpp"
  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "the program does not compile:\n${output}")
endif()
set(silent "")
foreach(header IN LISTS asking)
  if(NOT output MATCHES "tessera/${header}:[0-9]+:[0-9]+: warning: enumeration value [^\n]*one_more")
    string(APPEND silent "\n  ${header}")
  endif()
endforeach()
if(silent)
  message(FATAL_ERROR "a new enumerator goes unnoticed in:${silent}\nThe compiler says:\n${output}")
endif()
