#include "lockstep/base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/expect_error.h"
#include "tests/file_size_limit.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

TEST(ReadFile, ReturnsTheBytes) {
  TemporaryFolder folder;
  const std::string bytes("a\0b\n\xff", 5);
  EXPECT_EQ(read_file(folder.write("f", bytes), 5), bytes);
  EXPECT_EQ(read_file(folder.write("empty", ""), 0), "");
}

TEST(ReadFile, ReadsFilesThatDoNotKnowTheirSize) {
  ASSERT_EQ(fs::file_size("/proc/self/mountinfo"), 0u);
  EXPECT_GT(read_file("/proc/self/mountinfo", 1 << 24).size(), 10u);
}

TEST(ReadFile, KeepsTheBound) {
  TemporaryFolder folder;
  EXPECT_ERROR(read_file(folder.write("f", "123456"), 5), "it has 6 bytes, at most 5 are allowed");
  // Sparse, and larger than any memory: refused before anything of its size is allocated.
  fs::resize_file(folder / "f", std::uintmax_t{1} << 42);
  EXPECT_ERROR(read_file(folder / "f", 1000), "at most 1000 are allowed");
  EXPECT_ERROR(read_file("/proc/self/mountinfo", 3), "it has more than the 3 bytes allowed");
}

TEST(ReadFile, SaysWhatIsWrong) {
  TemporaryFolder folder;
  EXPECT_ERROR(read_file(folder / "none", 10), "cannot read " + (folder / "none").string() + ": No such file");
  EXPECT_ERROR(read_file(folder.path(), 10), "it is a directory");
}

// Opening a pipe to which nobody writes would wait.
TEST(ReadFile, RefusesWhatIsNoFile) {
  TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_ERROR(read_file(folder / "pipe", 10), "cannot read " + (folder / "pipe").string() + ": it is not a regular");
  EXPECT_ERROR(read_file("/dev/zero", 10), "it is not a regular file");
}

TEST(AtomicFile, AppearsWhenCommitted) {
  TemporaryFolder folder;
  {
    AtomicFile file(folder / "f");
    file.write("one ");
    file.write("two");
    EXPECT_FALSE(fs::exists(folder / "f"));
    file.commit();
    EXPECT_EQ(folder.read("f"), "one two");
    EXPECT_ERROR(file.write("three"), "it is already committed");
    EXPECT_ERROR(file.commit(), "it is already committed");
  }
  EXPECT_EQ(folder.read("f"), "one two");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(AtomicFile, KeepsTheOldFileUntilThen) {
  TemporaryFolder folder;
  folder.write("f", "old");
  {
    AtomicFile file(folder / "f");
    file.write("new");
    EXPECT_EQ(folder.read("f"), "old");
  }
  EXPECT_EQ(folder.read("f"), "old");
  EXPECT_EQ(folder.entries(), 1) << "the temporary file is still there";
  write_file_atomically(folder / "f", "new");
  EXPECT_EQ(folder.read("f"), "new");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(AtomicFile, HasTheModeOfAnyNewFile) {
  TemporaryFolder folder;
  const mode_t mask = ::umask(027);
  write_file_atomically(folder / "f", "x");
  ::umask(mask);
  EXPECT_EQ(fs::status(folder / "f").permissions(), fs::perms(0640));
}

TEST(AtomicFile, FullDiskKeepsTheOldFileAndLeavesNothing) {
  TemporaryFolder folder;
  folder.write("f", "old");
  {
    FileSizeLimit limit(1 << 20);
    EXPECT_ERROR(write_file_atomically(folder / "f", std::string(2 << 20, 'x')),
                 "cannot write " + (folder / "f").string() + ": File too large");
  }
  EXPECT_EQ(folder.read("f"), "old");
  EXPECT_EQ(folder.entries(), 1) << "the temporary file is still there";
}

TEST(AtomicFile, ShortWritesAreContinued) {
  // The system takes only the part of the second write that fits; asking it to take the rest is what fails.
  TemporaryFolder folder;
  FileSizeLimit limit(1 << 20);
  AtomicFile file(folder / "f");
  file.write(std::string((1 << 20) - 10, 'a'));
  EXPECT_ERROR(file.write(std::string(20, 'b')), "File too large");
}

TEST(AtomicFile, FollowsASymbolicLink) {
  TemporaryFolder folder;
  folder.write("real/f", "old");
  fs::create_symlink("real/f", folder / "link");
  write_file_atomically(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(folder.read("real/f"), "new");
}

TEST(AtomicFile, FollowsASymbolicLinkToAFileThatDoesNotExistYet) {
  TemporaryFolder folder;
  fs::create_directory(folder / "real");
  fs::create_symlink("real/middle", folder / "link");
  fs::create_symlink(folder / "real/f", folder / "real/middle");
  write_file_atomically(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_TRUE(fs::is_symlink(folder / "real/middle"));
  EXPECT_EQ(folder.read("real/f"), "new");

  fs::create_symlink("none/f", folder / "lost");
  EXPECT_ERROR(write_file_atomically(folder / "lost", "new"), "No such file or directory");
  EXPECT_TRUE(fs::is_symlink(folder / "lost"));
  fs::create_symlink("self", folder / "self");
  EXPECT_ERROR(write_file_atomically(folder / "self", "new"), "Too many levels of symbolic links");
}

TEST(AtomicFile, RefusesWhatIsNoFile) {
  TemporaryFolder folder;
  EXPECT_ERROR(AtomicFile(folder.path()), "it is a directory");
  EXPECT_ERROR(AtomicFile(folder / "none/f"), "No such file or directory");
  EXPECT_ERROR(AtomicFile("/dev/full"), "it is not a regular file");
  EXPECT_ERROR(AtomicFile(folder.path() / ""), "it names no file");
  EXPECT_ERROR(AtomicFile(""), "it names no file");
  EXPECT_ERROR(AtomicFile(folder.write("f", "x") / "g"), "Not a directory");
}

TEST(AtomicFile, WritesIntoTheCurrentFolder) {
  TemporaryFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  write_file_atomically("f", "here");
  fs::current_path(before);
  EXPECT_EQ(folder.read("f"), "here");
}

TEST(SyncFolder, NamesTheFolder) {
  TemporaryFolder folder;
  sync_folder(folder.path());
  EXPECT_ERROR(sync_folder(folder / "none"), "cannot sync " + (folder / "none").string());
}

}  // namespace
}  // namespace lockstep
