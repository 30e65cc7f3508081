// SPDX-License-Identifier: Apache-2.0
// Provides clocks and durations without the rest of <chrono>, whose calendars and formatting take g++ 13 half
// a second to parse. libstdc++ defines the clocks and durations of std::chrono for <thread>, which the ranks
// need anyway.
#pragma once

#include <version>

#if defined(__GLIBCXX__)
#include <thread>
#else
#include <chrono>
#endif
