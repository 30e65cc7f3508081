// SPDX-License-Identifier: Apache-2.0
// Tests which policies the program `info` lists as supported. A program that is built without CUDA must also
// list the policies that only a build with CUDA supports.
#include "info/slots.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/plan/support.hpp"

namespace ts = tessera;
namespace info = programs::info;

namespace {

std::optional<std::string> reason(std::string_view device, std::string_view slot, std::string_view choice) {
  for (info::Slot const& one : info::slots(device, ts::unsupported_reason))
    for (info::Choice const& other : one.choices)
      if (one.title == slot && other.name == choice) return other.reason;
  return "there is no such choice";
}

}  // namespace

TEST_CASE("slots are judged on the device that is asked about") {
  CHECK_FALSE(reason("cuda", "capture", "graph"));
  // The default attention does not support fp64, but another attention does. `info` therefore lists fp64 as
  // supported.
  CHECK_FALSE(reason("cuda", "precision", "fp64"));
  CHECK_FALSE(reason("cuda", "device", "cpu"));
  CHECK_FALSE(reason("cpu", "device", "cuda"));
  CHECK(reason("cpu", "capture", "graph").value_or("").find("--device cuda") != std::string::npos);
  CHECK_FALSE(reason("cpu", "precision", "fp64"));
  for (std::string_view const precision : {"tf32", "bf16x6", "bf16x3"}) {
    CHECK_FALSE(reason("cuda", "precision", precision));
    CHECK(reason("cpu", "precision", precision).value_or("").find("--device cuda") != std::string::npos);
  }
  CHECK(reason("cuda", "parallel", "data+tensor").value_or("").find("not part of this build") !=
        std::string::npos);
  CHECK_FALSE(reason("cpu", "loss scale", "dynamic"));  // supported: fp16 can use it
  CHECK_FALSE(reason("cpu", "communication", "tuned"));
  CHECK_FALSE(reason("cpu", "parallel", "data"));
}
