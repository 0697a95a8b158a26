#include "lockstep/net/secret.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/environment_variable.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

class SecretTest : public ::testing::Test {
 protected:
  EnvironmentVariable no_secret_{"LOCKSTEP_SECRET", nullptr}, no_file_{"LOCKSTEP_SECRET_FILE", nullptr};
  TemporaryFolder folder_;

  std::string read_file_of_mode(mode_t mode, const std::string& text = "the secret of this job\n") {
    const std::filesystem::path path = folder_.write("secret", text);
    ::chmod(path.c_str(), mode);
    const EnvironmentVariable file("LOCKSTEP_SECRET_FILE", path.c_str());
    return read_secret();
  }
};

TEST_F(SecretTest, ThereNeedBeNone) { EXPECT_EQ(read_secret(), ""); }

TEST_F(SecretTest, FromTheEnvironment) {
  const EnvironmentVariable secret("LOCKSTEP_SECRET", "the secret of this job");
  EXPECT_EQ(read_secret(), "the secret of this job");
}

TEST_F(SecretTest, FromAFileThatOthersCannotRead) {
  for (const mode_t mode : {0400, 0600, 0440, 0640}) EXPECT_EQ(read_file_of_mode(mode), "the secret of this job");
  for (const mode_t mode : {0604, 0644, 0602, 0660, 0601}) {
    EXPECT_ERROR(read_file_of_mode(mode),
                 fmt::format("has mode {:03o}: other users may read or change it; run chmod 600", mode));
  }
  EXPECT_EQ(read_file_of_mode(0600, "the secret of this job \r\n\n"), "the secret of this job");
}

TEST_F(SecretTest, WhatIsNoSecretIsNamed) {
  EXPECT_ERROR(read_file_of_mode(0600, "short\n"),
               "the secret in LOCKSTEP_SECRET_FILE has 5 characters, expected from 16");
  EXPECT_ERROR(read_file_of_mode(0600, std::string(5000, 'x')), "has 4097 characters, expected from 16 to 4096");
  EXPECT_ERROR(read_file_of_mode(0600, ""), "has 0 characters");
  {
    const EnvironmentVariable empty("LOCKSTEP_SECRET", "");
    EXPECT_ERROR(read_secret(), "the secret in LOCKSTEP_SECRET has 0 characters");
  }
  for (const auto& [weak, why] : {std::pair{"aaaaaaaaaaaaaaaa", "few different characters (1, expected at least 5)"},
                                  {"0101010001001010", "few different characters (2,"},
                                  {"passwordpassword", "a text of 8 characters that repeats (expected 16)"},
                                  {"secret!secret!sec", "a text of 7 characters that repeats"}}) {
    const EnvironmentVariable secret("LOCKSTEP_SECRET", weak);
    EXPECT_ERROR(read_secret(), fmt::format("the secret in LOCKSTEP_SECRET is easy to guess: {}", why));
  }
  {
    const EnvironmentVariable missing("LOCKSTEP_SECRET_FILE", "/no/such/file");
    EXPECT_ERROR(read_secret(), "cannot read /no/such/file: No such file or directory");
  }
  {
    const EnvironmentVariable folder("LOCKSTEP_SECRET_FILE", folder_.path().c_str());
    EXPECT_ERROR(read_secret(), "is not a regular file");
  }
  const std::filesystem::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const EnvironmentVariable file("LOCKSTEP_SECRET_FILE", pipe.c_str());
  EXPECT_ERROR(read_secret(), "is not a regular file");
  const EnvironmentVariable both("LOCKSTEP_SECRET", "the secret of this job");
  EXPECT_ERROR(read_secret(), "LOCKSTEP_SECRET and LOCKSTEP_SECRET_FILE are both set");
}

TEST_F(SecretTest, RandomTextIsNotWeak) {
  for (int i = 0; i < 100; ++i) {
    const std::string made = make_secret(), half = made.substr(0, 32), ends_as_it_begins = made + made.substr(0, 10);
    for (const std::string& text : {made, half, ends_as_it_begins}) {
      const EnvironmentVariable secret("LOCKSTEP_SECRET", text.c_str());
      EXPECT_EQ(read_secret(), text);
    }
  }
}

TEST_F(SecretTest, AreNeverTheSame) {
  EXPECT_EQ(make_secret().size(), 64u);
  EXPECT_NE(make_secret(), make_secret());
}

}  // namespace
}  // namespace lockstep
