// Expects that a statement throws a lockstep::Error whose message contains `part`.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {

class ExpectedError {
 public:
  ExpectedError(const char* file, int line, const char* statement, std::string_view part)
      : file_(file), line_(line), statement_(statement), part_(part) {}

  void nothing_thrown() const { fail("no error"); }
  void thrown(std::string_view message) const {
    if (message.find(part_) == std::string_view::npos) fail(message);
  }

 private:
  void fail(std::string_view found) const {
    ADD_FAILURE_AT(file_, line_) << statement_ << "\nfound:    " << found << "\nexpected: an error with \"" << part_
                                 << '"';
  }

  const char* file_;
  int line_;
  const char* statement_;
  std::string part_;
};

}  // namespace lockstep

// Google Mock's matchers would be compiled anew for each statement, which doubles the compile time of the tests.
#define EXPECT_ERROR(statement, part)                                                     \
  do {                                                                                    \
    const ::lockstep::ExpectedError expected_error(__FILE__, __LINE__, #statement, part); \
    try {                                                                                 \
      statement;                                                                          \
      expected_error.nothing_thrown();                                                    \
    } catch (const ::lockstep::Error& error) {                                            \
      expected_error.thrown(error.what());                                                \
    }                                                                                     \
  } while (false)
