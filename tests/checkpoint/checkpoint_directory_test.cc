#include "lockstep/checkpoint/checkpoint_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/expect_error.h"
#include "tests/temporary_folder.h"
#include "tests/unprivileged.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

void save(const fs::path& folder, std::int64_t step, CheckpointWriterOptions options = {}) {
  CheckpointWriter writer(folder, step, options);
  writer.add_file("weights.bin", "weights of step " + std::to_string(step));
  writer.add_file("state.json", "{}");
  writer.publish();
}

std::vector<std::string> names(const fs::path& folder) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder)) found.push_back(entry.path().filename().string());
  std::ranges::sort(found);
  return found;
}

using Names = std::vector<std::string>;

TEST(CheckpointDirectory, ReturnsWhatWasPublished) {
  TemporaryFolder folder;
  {
    CheckpointWriter writer(folder / "new/folder", 123);
    writer.add_file("pieces", [](const ByteSink& sink) {
      sink(std::as_bytes(std::span("ab", 2)));
      sink({});
      sink(std::as_bytes(std::span("c", 1)));
    });
    writer.add_file("empty", "");
    EXPECT_FALSE(find_latest_checkpoint(folder / "new/folder").checkpoint.has_value());
    writer.publish();
  }
  EXPECT_EQ(names(folder / "new/folder"), Names{"step-00000123"});
  EXPECT_EQ(names(folder / "new/folder/step-00000123"), (Names{"empty", "manifest.json", "pieces"}));

  const LatestCheckpoint latest = find_latest_checkpoint(folder / "new/folder");
  EXPECT_TRUE(latest.damaged.empty());
  ASSERT_TRUE(latest.checkpoint.has_value());
  EXPECT_EQ(latest.checkpoint->step, 123);
  EXPECT_EQ(latest.checkpoint->files, (Names{"empty", "pieces"}));
  EXPECT_EQ(latest.checkpoint->file("pieces"), folder / "new/folder/step-00000123/pieces");
  EXPECT_EQ(folder.read("new/folder/step-00000123/pieces"), "abc");
  EXPECT_ERROR(latest.checkpoint->file("other"), "step-00000123 has no file other");
}

TEST(CheckpointDirectory, HasALatestOnlyWhereThereAreSome) {
  TemporaryFolder folder;
  EXPECT_FALSE(find_latest_checkpoint(folder / "none").checkpoint.has_value());
  EXPECT_FALSE(find_latest_checkpoint(folder.path()).checkpoint.has_value());
  folder.write("file", "");
  EXPECT_ERROR(find_latest_checkpoint(folder / "file"), "cannot list");
  // Names that only look like a checkpoint's.
  for (const char* name : {"step-", "step-1", "step-0000001x", "step--0000001", "step-000000001"}) {
    fs::create_directory(folder / name);
  }
  const LatestCheckpoint latest = find_latest_checkpoint(folder.path());
  EXPECT_FALSE(latest.checkpoint.has_value());
  EXPECT_TRUE(latest.damaged.empty());
}

TEST(CheckpointDirectory, KeepsTheNewestOnes) {
  TemporaryFolder folder;
  for (std::int64_t step : {0, 9, 10, 99999999, 100000000}) save(folder.path(), step);
  EXPECT_EQ(names(folder.path()), (Names{"step-100000000", "step-99999999"}));
  EXPECT_EQ(find_latest_checkpoint(folder.path()).checkpoint->step, 100000000);
  save(folder.path(), 100000001, {.keep = 3});
  EXPECT_EQ(folder.entries(), 3);
  save(folder.path(), 100000002, {.keep = 1});
  EXPECT_EQ(names(folder.path()), Names{"step-100000002"});
}

TEST(CheckpointDirectory, LeavesOtherFilesAlone) {
  TemporaryFolder folder;
  folder.write("log.jsonl", "{}");
  folder.write("step-1/notes", "mine");
  for (std::int64_t step : {1, 2, 3}) save(folder.path(), step);
  EXPECT_EQ(names(folder.path()), (Names{"log.jsonl", "step-00000002", "step-00000003", "step-1"}));
}

// As a writer leaves it that dies while it replaces step 2, where the file system cannot exchange two names.
TEST(CheckpointDirectory, OneThatWasMovedAsideIsFoundAndComesBack) {
  TemporaryFolder folder;
  save(folder.path(), 1);
  save(folder.path(), 2);
  fs::rename(folder / "step-00000002", folder / ".tmp-step-00000002-old");
  const LatestCheckpoint latest = find_latest_checkpoint(folder.path());
  ASSERT_TRUE(latest.checkpoint.has_value());
  EXPECT_EQ(latest.checkpoint->step, 2);
  EXPECT_EQ(folder.read(".tmp-step-00000002-old/manifest.json").empty(), false);
  save(folder.path(), 3);
  EXPECT_EQ(names(folder.path()), (Names{"step-00000002", "step-00000003"}));
}

TEST(CheckpointDirectory, AManifestNestedTooDeepIsDamaged) {
  TemporaryFolder folder;
  save(folder.path(), 1);
  const std::string deep(400'000, '[');
  folder.write("step-00000002/manifest.json", R"({"format": "lockstep-checkpoint", "version": )" + deep + "}");
  const LatestCheckpoint latest = find_latest_checkpoint(folder.path());
  EXPECT_EQ(latest.checkpoint->step, 1);
  ASSERT_EQ(latest.damaged.size(), 1u);
  EXPECT_THAT(latest.damaged[0], testing::HasSubstr("damaged manifest: it is nested more than 3 deep"));
  save(folder.path(), 3);  // the writer reads it, too
}

TEST(CheckpointDirectory, ANameTwiceInAManifestIsDamage) {
  TemporaryFolder folder;
  folder.write("step-00000002/manifest.json",
               R"({"format": "lockstep-checkpoint", "version": 1, "step": 2, "step": 2, "files": {}})");
  EXPECT_ERROR(open_checkpoint(folder / "step-00000002"), "it has \"step\" more than once");
}

TEST(CheckpointDirectory, WithoutPublishNothingStays) {
  TemporaryFolder folder;
  save(folder.path(), 1);
  {
    CheckpointWriter writer(folder.path(), 2);
    writer.add_file("weights.bin", "half");
    EXPECT_THROW(writer.add_file("state", [](const ByteSink&) { throw std::runtime_error("no state"); }),
                 std::runtime_error);
  }
  EXPECT_EQ(names(folder.path()), Names{"step-00000001"});
}

TEST(CheckpointDirectory, ReplacesACheckpointOfItsStep) {
  TemporaryFolder folder;
  save(folder.path(), 7);
  folder.write("step-00000007/weights.bin", "torn");
  save(folder.path(), 7);
  EXPECT_EQ(names(folder.path()), Names{"step-00000007"});
  EXPECT_EQ(open_checkpoint(folder / "step-00000007").step, 7);
  EXPECT_EQ(folder.read("step-00000007/weights.bin"), "weights of step 7");
}

TEST(CheckpointDirectory, CleansUpAfterWritersThatDied) {
  TemporaryFolder folder;
  folder.write(".tmp-step-00000005/weights.bin", "half");
  folder.write(".tmp-step-00000004-old/weights.bin", "old");
  save(folder.path(), 5);
  EXPECT_EQ(names(folder.path()), Names{"step-00000005"});
}

TEST(CheckpointDirectory, AnotherRunsLaterCheckpointsAreSafe) {
  TemporaryFolder folder;
  save(folder.path(), 500);
  EXPECT_ERROR(CheckpointWriter(folder.path(), 100), "holds step 500, cannot add step 100");
  EXPECT_EQ(names(folder.path()), Names{"step-00000500"});
}

TEST(CheckpointDirectory, GoesOnAfterADamagedOne) {
  TemporaryFolder folder;
  save(folder.path(), 200);
  save(folder.path(), 300);
  fs::remove(folder / "step-00000300/state.json");
  EXPECT_EQ(find_latest_checkpoint(folder.path()).checkpoint->step, 200);
  save(folder.path(), 250);
  EXPECT_EQ(names(folder.path()), (Names{"step-00000200", "step-00000250"}));
}

TEST(CheckpointDirectory, OneWriterAtATime) {
  TemporaryFolder folder;
  CheckpointWriter first(folder.path(), 1);
  EXPECT_ERROR(CheckpointWriter(folder.path(), 2), "another process is writing to " + folder.path().string());
  first.publish();
}

TEST(CheckpointDirectory, RefusesMisuse) {
  TemporaryFolder folder;
  EXPECT_ERROR(CheckpointWriter(folder.path(), -1), "step is -1");
  EXPECT_ERROR(CheckpointWriter(folder.path(), 1, {.keep = 0}), "keep is 0");
  CheckpointWriter writer(folder.path(), 1);
  for (const char* name : {"", ".", "..", "a/b", "../b", "manifest.json"}) {
    EXPECT_ERROR(writer.add_file(name, ""), "cannot be the name of a file");
  }
  writer.add_file("a", "");
  EXPECT_ERROR(writer.add_file("a", ""), "file a already exists");
  writer.publish();
  EXPECT_ERROR(writer.add_file("b", ""), "step 1 is published");
  EXPECT_ERROR(writer.publish(), "step 1 is published");
}

TEST(CheckpointDirectory, NamesTheParentThatCannotBeWritten) {
  TemporaryFolder folder;
  folder.write("file", "");
  EXPECT_ERROR(CheckpointWriter(folder / "file/below", 1),
               "cannot make folder " + (folder / "file").string() + ": File exists");
  fs::create_directory(folder / "locked");
  ASSERT_EQ(::chmod((folder / "locked").c_str(), 0555), 0);
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  const Unprivileged user;
  EXPECT_ERROR(CheckpointWriter(folder / "locked", 1), "locked/.tmp-step-00000001: Permission denied");
  EXPECT_ERROR(CheckpointWriter(folder / "locked/sub", 1), "locked/sub: Permission denied");
}

class DamagedCheckpoint : public ::testing::Test {
 protected:
  DamagedCheckpoint() {
    save(folder_.path(), 1);
    save(folder_.path(), 2);
  }
  // The newest is refused with these words, the one before it is found instead.
  void expect_damage(const std::string& part) {
    EXPECT_ERROR(open_checkpoint(newest_), part);
    const LatestCheckpoint latest = find_latest_checkpoint(folder_.path());
    ASSERT_TRUE(latest.checkpoint.has_value());
    EXPECT_EQ(latest.checkpoint->step, 1);
    ASSERT_EQ(latest.damaged.size(), 1u);
    EXPECT_THAT(latest.damaged[0], ::testing::HasSubstr(part));
  }
  void replace_in_manifest(const std::string& from, const std::string& to) {
    std::string text = folder_.read("step-00000002/manifest.json");
    ASSERT_NE(text.find(from), text.npos);
    folder_.write("step-00000002/manifest.json", text.replace(text.find(from), from.size(), to));
  }

  TemporaryFolder folder_;
  fs::path newest_ = folder_ / "step-00000002";
  std::string weights_ = (newest_ / "weights.bin").string();
};

TEST_F(DamagedCheckpoint, MissingFile) {
  fs::remove(weights_);
  expect_damage(weights_ + ": missing, expected 17 bytes");
}

TEST_F(DamagedCheckpoint, TruncatedFile) {
  fs::resize_file(weights_, 5);
  expect_damage(weights_ + ": 5 bytes, expected 17");
}

TEST_F(DamagedCheckpoint, FlippedBit) {
  folder_.write("step-00000002/weights.bin", "weights of step 3");
  expect_damage(weights_ + ": SHA-256 is ");
}

TEST_F(DamagedCheckpoint, FolderInPlaceOfAFile) {
  fs::remove(weights_);
  fs::create_directory(weights_);
  expect_damage(weights_ + ": not a regular file");
}

TEST_F(DamagedCheckpoint, MissingManifest) {
  fs::remove(newest_ / "manifest.json");
  expect_damage("manifest.json: No such file or directory");
}

TEST_F(DamagedCheckpoint, TornManifest) {
  fs::resize_file(newest_ / "manifest.json", 40);
  expect_damage("manifest.json: damaged manifest: ");
}

TEST_F(DamagedCheckpoint, ManifestOfAnotherStep) {
  replace_in_manifest("\"step\": 2", "\"step\": 3");
  expect_damage("manifest.json: step is 3, expected 2 as in the folder's name");
}

TEST_F(DamagedCheckpoint, ManifestOfALaterVersion) {
  replace_in_manifest("\"version\": 1", "\"version\": 2");
  expect_damage("manifest.json: damaged manifest: version is 2, expected 1");
}

TEST_F(DamagedCheckpoint, ManifestThatPointsElsewhere) {
  replace_in_manifest("state.json", "../x");
  expect_damage("a file has the name \"../x\"");
}

TEST_F(DamagedCheckpoint, ManifestWithImpossibleSize) {
  replace_in_manifest("\"bytes\": 17", "\"bytes\": -1");
  expect_damage("bytes is -1, expected a count");
}

TEST_F(DamagedCheckpoint, AllOfThem) {
  fs::remove(newest_ / "manifest.json");
  fs::remove(folder_ / "step-00000001/weights.bin");
  const LatestCheckpoint latest = find_latest_checkpoint(folder_.path());
  EXPECT_FALSE(latest.checkpoint.has_value());
  ASSERT_EQ(latest.damaged.size(), 2u);
  EXPECT_THAT(latest.damaged[0], ::testing::HasSubstr("step-00000002"));
  EXPECT_THAT(latest.damaged[1], ::testing::HasSubstr("step-00000001"));
}

}  // namespace
}  // namespace lockstep
