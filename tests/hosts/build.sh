# SPDX-License-Identifier: Apache-2.0
# Builds programs with tessera::mpi, for shell scripts. The environment variables CXX, GENERATOR and
# CMAKE_CXX_COMPILER_LAUNCHER have their usual meaning.
#   build_ranks FOLDER MPICC    builds ranks.cpp in FOLDER; the program is FOLDER/ranks
#   build_train FOLDER MPICC    builds the program `train` in FOLDER; the program is FOLDER/bin/train
# Both print the log and exit with 1 if the build fails. They print "skipped: " and the reason, and exit with 0, if there is
# no compiler MPICC.
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
