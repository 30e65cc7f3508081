// SPDX-License-Identifier: Apache-2.0
// Clocks and durations without the rest of <chrono>: calendars and their formatting take g++ 13 half a second
// to parse. libstdc++ defines std::chrono's clocks and durations for <thread>, which the ranks need anyway.
#pragma once

#include <version>

#if defined(__GLIBCXX__)
#include <thread>
#else
#include <chrono>
#endif
