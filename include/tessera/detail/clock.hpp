// SPDX-License-Identifier: Apache-2.0
// Provides the clocks and durations of std::chrono. With libstdc++, this header includes <thread> instead of
// <chrono>. libstdc++ already defines the clocks and durations in <thread>, which programs include anyway for
// the threads of their ranks. <chrono> would also define calendars and formatting, and g++ 13 needs half a
// second to parse them.
#pragma once

#include <version>

#if defined(__GLIBCXX__)
#include <thread>
#else
#include <chrono>
#endif
