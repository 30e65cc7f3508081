# SPDX-License-Identifier: Apache-2.0
# Functions for shell scripts that build programs with tessera::mpi. A script sets $here to the folder of this file
# before it calls them. The environment variables CXX, GENERATOR and CMAKE_CXX_COMPILER_LAUNCHER have their usual
# meaning for CMake.
#   build_ranks FOLDER MPICC    builds ranks.cpp in FOLDER; the program is FOLDER/ranks
#   build_train FOLDER MPICC    builds the program `train` in FOLDER; the program is FOLDER/bin/train
# MPICC is the C compiler of an MPI library, which the program then uses. If there is no compiler MPICC, the functions
# print "skipped: " and the reason, and exit with 0. If the build fails, they print its log and exit with 1.
build_with_mpi() {
  local folder=$1 compiler=$2 source=$3 target=$4
  shift 4
  command -v "$compiler" >/dev/null || {
    echo "skipped: $compiler is not installed (apt-get install libopenmpi-dev openmpi-bin, or libmpich-dev mpich)"
    exit 0
  }
  mkdir -p "$folder"
  { cmake -S "$source" -B "$folder" -DMPI_C_COMPILER="$(command -v "$compiler")" ${CXX:+-DCMAKE_CXX_COMPILER="$CXX"} \
      ${GENERATOR:+-G "$GENERATOR"} "$@" && cmake --build "$folder" --target "$target"; } >"$folder/build.log" 2>&1 ||
    { cat "$folder/build.log"; exit 1; }
}
build_ranks() { build_with_mpi "$1" "$2" "$here/project" ranks -DTESSERA_SOURCE="$here/../.."; }
build_train() {
  build_with_mpi "$1" "$2" "$here/../.." tessera_train -DTESSERA_MPI=ON -DTESSERA_BUILD_TESTS=OFF -DTESSERA_PROGRAMS=train \
    -DCMAKE_BUILD_TYPE=Release
}
