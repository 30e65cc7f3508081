# SPDX-License-Identifier: Apache-2.0
# Builds an image with the programs for NVIDIA GPUs. Run these commands in the source folder:
#   docker build -t tessera-cuda -f examples/docker/cuda.Dockerfile .
#   docker run --rm --gpus all -v "$PWD/results:/tessera/results" tessera-cuda
# The machine that runs the container needs NVIDIA's container toolkit and a driver that supports CUDA 13.
FROM nvidia/cuda:13.0.0-devel-ubuntu24.04
WORKDIR /tessera
RUN apt-get update && apt-get install -y --no-install-recommends g++ cmake ninja-build libeigen3-dev nlohmann-json3-dev libcli11-dev libxxhash-dev libpcre2-dev libsentencepiece-dev libutf8proc-dev libzstd-dev zlib1g-dev liburing-dev fortunes && rm -rf /var/lib/apt/lists/*
COPY . .
# The machine that builds the image possibly has no GPU and another CPU than the machine that runs it. So
# TESSERA_FAT compiles for every supported GPU, and TESSERA_NATIVE=OFF compiles for a generic CPU. To compile
# for one kind of GPU in less time:
#   docker build --build-arg GPUS=-DCMAKE_CUDA_ARCHITECTURES=90a-real ...
ARG GPUS=-DTESSERA_FAT=ON
RUN rm -rf build && cmake --preset cuda -DTESSERA_NATIVE=OFF "$GPUS" && cmake --build --preset cuda
CMD ["build/cuda/bin/compare", "--device", "cuda"]
