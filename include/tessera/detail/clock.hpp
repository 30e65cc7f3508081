// SPDX-License-Identifier: Apache-2.0
// Provides the clocks and durations of std::chrono. It does not include <chrono> if it can avoid that: g++ 13
// needs half a second to parse the calendars and formatting of that header. libstdc++ already defines the
// clocks and durations in <thread>, which programs include anyway for the threads of their ranks.
#pragma once

#include <version>

#if defined(__GLIBCXX__)
#include <thread>
#else
#include <chrono>
#endif
