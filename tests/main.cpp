// SPDX-License-Identifier: Apache-2.0
// Defines the main function of all test programs. The program fails if no test case has the requested name.
#define DOCTEST_CONFIG_IMPLEMENT
#include <iostream>

#include <doctest/doctest.h>

namespace {

struct Count : doctest::IReporter {
  explicit Count(doctest::ContextOptions const& options) : out(*options.cout) {}

  void test_run_end(doctest::TestRunStats const& run) override {
    none = run.numTestCasesPassingFilters == 0;
    if (none) out << "no test case has this name\n";
  }
  void report_query(doctest::QueryData const&) override {}
  void test_run_start() override {}
  void test_case_start(doctest::TestCaseData const&) override {}
  void test_case_reenter(doctest::TestCaseData const&) override {}
  void test_case_end(doctest::CurrentTestCaseStats const&) override {}
  void test_case_exception(doctest::TestCaseException const&) override {}
  void subcase_start(doctest::SubcaseSignature const&) override {}
  void subcase_end() override {}
  void log_assert(doctest::AssertData const&) override {}
  void log_message(doctest::MessageData const&) override {}
  void test_case_skipped(doctest::TestCaseData const&) override {}

  static inline bool none = false;
  std::ostream& out;
};
DOCTEST_REGISTER_LISTENER("count", 1, Count);

}  // namespace

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  int const code = context.run();
  return code != 0 || context.shouldExit() ? code : Count::none;
}
