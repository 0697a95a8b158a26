#include "lockstep/base/option_error.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

std::string named(const std::string& message, std::vector<std::string> fields) {
  return OptionError(message, std::move(fields)).with_names([](const std::string& field) { return "--" + field; });
}

TEST(OptionError, HasTheMessageAndItsFields) {
  try {
    check_option(true, "size", "never");
    check_option(false, "size", "size is {}, expected {}", 3, "4");
    FAIL();
  } catch (const OptionError& error) {
    EXPECT_STREQ(error.what(), "size is 3, expected 4");
    EXPECT_EQ(error.fields(), std::vector<std::string>{"size"});
  }
}

TEST(OptionError, HasNoControlCharacters) {
  try {
    check_option(false, "target", "target is {}", "a\x1b[2Jb");
    FAIL();
  } catch (const OptionError& error) {
    EXPECT_STREQ(error.what(), "target is a\\x1b[2Jb");
  }
}

TEST(OptionError, TakesOtherNamesForTheFields) {
  EXPECT_EQ(named("a.csv: val_split is 1, expected less", {"val_split"}), "a.csv: --val_split is 1, expected less");
  EXPECT_EQ(named("max_pixels = 64 reads it; skip_broken leaves it out", {"max_pixels", "skip_broken"}),
            "--max_pixels 64 reads it; --skip_broken leaves it out");
  // Parts of paths and of other words, and words of data where the field is quoted, stay.
  EXPECT_EQ(named("my_size/size.csv and size-2: size 3", {"size"}), "my_size/size.csv and size-2: --size 3");
  EXPECT_EQ(named("'unseen' is new (`unseen` permits it)", {"unseen"}), "'unseen' is new (--unseen permits it)");
  EXPECT_EQ(named("nothing of it", {"size"}), "nothing of it");
}

}  // namespace
}  // namespace lockstep
