#include "lockstep/base/private_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

class PrivateFile : public ::testing::Test {
 protected:
  std::string read() const { return read_private_file(file_, 100, "key"); }

  TemporaryFolder folder_;
  std::filesystem::path file_ = folder_.write("a key", "text");
};

TEST_F(PrivateFile, IsOfAModeThatOthersCannotUse) {
  for (const mode_t mode : {0600, 0400, 0640}) {
    ::chmod(file_.c_str(), mode);
    EXPECT_EQ(read(), "text");
  }
  for (const mode_t mode : {0666, 0604, 0620, 0601}) {
    ::chmod(file_.c_str(), mode);
    EXPECT_ERROR(read(), fmt::format("key: {} has mode {:03o}: other users may read or change it; run chmod 600 '{}'",
                                     file_.string(), mode, file_.string()));
  }
}

TEST_F(PrivateFile, IsInAFolderThatOthersCannotWriteTo) {
  ::chmod(file_.c_str(), 0600);
  for (const mode_t mode : {0777, 0770, 0775, 0702}) {
    ::chmod(folder_.path().c_str(), mode);
    EXPECT_ERROR(read(), fmt::format("and mode {:o}: other users may replace it", mode));
  }
  for (const mode_t mode : {01777, 01770, 0755}) {  // 1777: as /tmp
    ::chmod(folder_.path().c_str(), mode);
    EXPECT_EQ(read(), "text");
  }
  ::chmod(folder_.path().c_str(), 0700);
}

TEST_F(PrivateFile, IsOfThisUserOrRoot) {
  ::chmod(file_.c_str(), 0600);
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  constexpr uid_t kOther = 65534;
  ASSERT_EQ(::chown(file_.c_str(), kOther, static_cast<gid_t>(-1)), 0);
  EXPECT_ERROR(read(), "belongs to user 65534, expected user 0 or root");
  ASSERT_EQ(::chown(file_.c_str(), 0, static_cast<gid_t>(-1)), 0);
  ASSERT_EQ(::chown(folder_.path().c_str(), kOther, static_cast<gid_t>(-1)), 0);
  EXPECT_ERROR(read(), "of user 65534 and mode 700: other users may replace it");
  ASSERT_EQ(::chown(folder_.path().c_str(), 0, static_cast<gid_t>(-1)), 0);
}

TEST_F(PrivateFile, SaysWhyItCannotBeRead) {
  ::chmod(file_.c_str(), 0600);
  EXPECT_ERROR(read_private_file(file_, 3, "key"), "has 4 bytes, at most 3 are allowed");
  EXPECT_ERROR(read_private_file(folder_.path(), 3, "key"), "is not a regular file");
  EXPECT_ERROR(read_private_file(folder_ / "none", 3, "key"), "No such file");
}

}  // namespace
}  // namespace lockstep
