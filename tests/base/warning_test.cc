#include "lockstep/base/warning.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(WarningTest, TheDefaultPrintsTheFirstOfEachKind) {
  const WarningHandler before = set_warning_handler(nullptr);
  ::testing::internal::CaptureStderr();
  warn("a test", "first");
  warn("a test", "second");
  warn("another test", "third");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "lockstep: warning (a test): first\nlockstep: warning (another test): third\n");
  set_warning_handler(before);
}

TEST(WarningTest, AHandlerGetsAll) {
  std::string all;
  const WarningHandler before = set_warning_handler([&](const Warning& w) { all += w.kind + ": " + w.message + ";"; });
  warn("a kind", "one");
  warn("a kind", "two");
  set_warning_handler(before);
  EXPECT_EQ(all, "a kind: one;a kind: two;");
}

}  // namespace
}  // namespace lockstep
