# SPDX-License-Identifier: Apache-2.0
# A model's source calls the operations that engines compile and compiles none of them itself. It has no GPU code, so an
# operation that it compiled might silently do nothing on a GPU.
# cmake -DCOMPILER=... -DNM=... -DINCLUDE=... -DEIGEN=... -DFOLDER=... -P compiled_model.cmake
cmake_minimum_required(VERSION 3.25)
file(MAKE_DIRECTORY "${FOLDER}")
file(WRITE "${FOLDER}/model.cpp" "#include \"tessera/nn/gpt2.hpp\"
#include \"tessera/train/compiled_model.hpp\"
tessera::AnyModel compiled(tessera::Gpt2 model) { return tessera::any_model<tessera::Cuda>(model); }
")
execute_process(COMMAND "${COMPILER}" -std=c++20 -O0 "-I${INCLUDE}" -isystem "${EIGEN}" -c "${FOLDER}/model.cpp" -o "${FOLDER}/model.o"
                RESULT_VARIABLE status ERROR_VARIABLE errors)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "a model for GPUs does not compile without nvcc:\n${errors}")
endif()
execute_process(COMMAND "${NM}" -C "${FOLDER}/model.o" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
foreach(operation linear linear_backward_weight layer_norm_backward_weight begin_row_sums end_row_sums)
  if(NOT symbols MATCHES " U [^\n]*ops::${operation}<[^\n]*Cuda>")
    message(FATAL_ERROR "a model's own source has its own ${operation} for GPUs; it belongs into TESSERA_OPERATIONS of compiled_model.hpp")
  endif()
  if(symbols MATCHES "\n[0-9a-f]+ [TWt] [^\n]*ops::${operation}<[^\n]*Cuda>")
    message(FATAL_ERROR "a model's own source defines ${operation} for GPUs")
  endif()
endforeach()
