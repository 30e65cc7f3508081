// SPDX-License-Identifier: Apache-2.0
// The door for checkpoints: everything of tessera.hpp, and what saves and resumes a trainer. Needs
// nlohmann-json and xxHash unless tessera::recipes is linked.
#pragma once

#include "tessera/checkpoint/checkpoint.hpp"
#include "tessera/tessera.hpp"
