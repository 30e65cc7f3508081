// SPDX-License-Identifier: Apache-2.0
// Provides checkpoints: includes all of tessera.hpp and the code that saves and resumes a trainer. Needs
// nlohmann-json and xxHash unless tessera::recipes is linked.
#pragma once

#include "tessera/checkpoint/checkpoint.hpp"
#include "tessera/tessera.hpp"
