# SPDX-License-Identifier: Apache-2.0
# Tessera with its GPU part. From the source folder:
#   docker build -t tessera-cuda -f examples/docker/cuda.Dockerfile .
#   docker run --rm --gpus all -v "$PWD/results:/tessera/results" tessera-cuda
# Needs a driver that serves CUDA 13 and NVIDIA's container toolkit on the machine that runs it.
FROM nvidia/cuda:13.0.0-devel-ubuntu24.04
WORKDIR /tessera
RUN apt-get update && apt-get install -y --no-install-recommends g++ cmake ninja-build libeigen3-dev nlohmann-json3-dev libcli11-dev libxxhash-dev libpcre2-dev libsentencepiece-dev libutf8proc-dev libzstd-dev zlib1g-dev liburing-dev fortunes && rm -rf /var/lib/apt/lists/*
COPY . .
# A build of an image sees neither the GPU nor the cores it will run on, so it compiles for all of them. For one kind, take less time:
#   docker build --build-arg GPUS=-DCMAKE_CUDA_ARCHITECTURES=90a-real ...
ARG GPUS=-DTESSERA_FAT=ON
RUN rm -rf build && cmake --preset cuda -DTESSERA_NATIVE=OFF "$GPUS" && cmake --build --preset cuda
CMD ["build/cuda/bin/compare", "--device", "cuda"]
