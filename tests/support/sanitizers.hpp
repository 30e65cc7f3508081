// SPDX-License-Identifier: Apache-2.0
// Says with which sanitizer the tests are compiled: TESSERA_TEST_ADDRESS_SANITIZER and
// TESSERA_TEST_THREAD_SANITIZER are 1 or 0. GCC defines macros of its own, and older versions of Clang answer
// __has_feature only.
#pragma once

#if defined(__has_feature)
#define TESSERA_TEST_FEATURE(name) __has_feature(name)
#else
#define TESSERA_TEST_FEATURE(name) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || TESSERA_TEST_FEATURE(address_sanitizer)
#define TESSERA_TEST_ADDRESS_SANITIZER 1
#else
#define TESSERA_TEST_ADDRESS_SANITIZER 0
#endif

#if defined(__SANITIZE_THREAD__) || TESSERA_TEST_FEATURE(thread_sanitizer)
#define TESSERA_TEST_THREAD_SANITIZER 1
#else
#define TESSERA_TEST_THREAD_SANITIZER 0
#endif
