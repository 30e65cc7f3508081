// SPDX-License-Identifier: Apache-2.0
// Provides checkpoints: includes all of tessera.hpp and the code that saves and resumes a trainer. A program
// that includes this header needs nlohmann-json and xxHash. It needs neither if it links the CMake target
// tessera::recipes, a library that contains this code in compiled form.
#pragma once

#include "tessera/checkpoint/checkpoint.hpp"
#include "tessera/tessera.hpp"
