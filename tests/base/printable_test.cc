#include "lockstep/base/printable.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

TEST(Printable, HasNoControlCharacters) {
  EXPECT_EQ(printable_name("cat 1.jpg"), "cat 1.jpg");
  EXPECT_EQ(printable_name("\x1b]0;title\a\r\x7f"), "\\x1b]0;title\\x07\\x0d\\x7f");
  EXPECT_EQ(printable_name(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable_name("\u009b31m\u0080\u009f\u00a0"), "\\xc2\\x9b31m\\xc2\\x80\\xc2\\x9f\u00a0");
  EXPECT_EQ(printable_name("a\tb\nc"), "a\\x09b\\x0ac");
  EXPECT_EQ(printable_text("a\tb\nc\x1b"), "a\tb\nc\\x1b");
}

TEST(Printable, IsUtf8) {
  EXPECT_EQ(printable_name("Käse 猫 🐈"), "Käse 猫 🐈");
  EXPECT_EQ(printable_name("\x9b"
                           "31m\xff\xc3"),
            "\\x9b31m\\xff\\xc3");
  EXPECT_EQ(printable_name("\xc0\x9b\xed\xa0\x80\xf4\x90\x80\x80"),
            "\\xc0\\x9b\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80");  // overlong, a surrogate, and beyond Unicode
  const std::string once = printable_name("\x1b\x9b");
  EXPECT_EQ(printable_name(once), once);
}

TEST(Printable, ErrorsAre) {
  EXPECT_ERROR(fail("class {}\nis odd", "\x1b[2J\u009b"), "class \\x1b[2J\\xc2\\x9b\nis odd");
}

TEST(ShellQuoted, IsOneWord) {
  EXPECT_EQ(shell_quoted("a/b-1.pth"), "a/b-1.pth");
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("a b"), "'a b'");
  EXPECT_EQ(shell_quoted("$(rm -r ~)'`\""), "'$(rm -r ~)'\\''`\"'");
}

}  // namespace
}  // namespace lockstep
