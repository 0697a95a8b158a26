#include "lockstep/comm/file_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <future>
#include <set>
#include <thread>
#include <vector>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/comm/rendezvous.h"
#include "tests/environment_variable.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

class FileStoreTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  FileStore a_{folder_ / "store"}, b_{folder_ / "store"};
};

TEST_F(FileStoreTest, WhatOneSetsAnotherGets) {
  a_.set("key", "value");
  EXPECT_EQ(b_.get("key", 0ms), "value");
  a_.set("key", "other");
  EXPECT_EQ(b_.get("key", 0ms), "other");
  EXPECT_TRUE(b_.contains("key"));
  EXPECT_FALSE(b_.contains("Key"));
  const std::string key(1024, '/'), value(1 << 20, '\0');
  a_.set(key, value);
  EXPECT_EQ(b_.get(key, 0ms), value);
}

TEST_F(FileStoreTest, GetWaitsForSet) {
  std::thread waiter([&] { EXPECT_EQ(b_.get("late", 20s), "now"); });
  std::this_thread::sleep_for(20ms);
  a_.set("late", "now");
  waiter.join();
  EXPECT_ERROR(a_.get("nothing", 20ms), "no process has set \"nothing\" within 0.02 s");
}

TEST_F(FileStoreTest, AddCountsEachOnce) {
  std::vector<std::future<std::set<std::int64_t>>> futures;
  for (int t = 0; t < 4; ++t) {
    futures.push_back(std::async(std::launch::async, [&] {
      FileStore store(folder_ / "store");
      std::set<std::int64_t> sums;
      for (int i = 0; i < 25; ++i) sums.insert(store.add("count", 1));
      return sums;
    }));
  }
  std::set<std::int64_t> all;
  for (auto& future : futures) all.merge(future.get());
  EXPECT_EQ(all.size(), 100u);
  EXPECT_EQ(a_.get("count", 0ms), "100");
  EXPECT_EQ(a_.add("count", -101), -1);
}

TEST_F(FileStoreTest, WhatCannotWorkIsNamed) {
  EXPECT_ERROR(FileStore(folder_ / "no" / "such"), "No such file or directory");
  EXPECT_ERROR(FileStore(folder_.write("file", "")), "is no folder");
  EXPECT_ERROR(a_.set("", ""), "a key of 0 bytes");
  EXPECT_ERROR(a_.set("key", std::string((1 << 20) + 1, 'x')), "1048577 bytes, expected at most 1048576");
  a_.set("word", "abc");
  EXPECT_ERROR(a_.add("word", 1), "the store's \"word\" is \"abc\", expected an integer");
  a_.add("large", INT64_MAX);
  EXPECT_ERROR(a_.add("large", 1), "do not fit into 64 bits");
}

// As a process does that is stopped while it counts.
TEST_F(FileStoreTest, WhoHoldsTheLockHoldsNobodyUpForEver) {
  EXPECT_EQ(a_.add("count", 1), 1);
  const FileDescriptor lock(::open((folder_ / "store" / "lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  FileStore store(folder_ / "store", 50ms);
  EXPECT_ERROR(store.add("count", 1), "has been locked by another process for 0.05 s");
  ASSERT_EQ(::flock(lock.get(), LOCK_UN), 0);
  EXPECT_EQ(store.add("count", 1), 2);
}

TEST_F(FileStoreTest, RanksMeetThere) {
  const EnvironmentVariable no_secret("LOCKSTEP_SECRET", nullptr);
  std::vector<std::future<std::string>> keys;
  for (int rank = 0; rank < 3; ++rank) {
    keys.push_back(std::async(std::launch::async, [&, rank] {
      return resolve_rendezvous({.rank = rank,
                                 .world_size = 3,
                                 .store = std::make_shared<FileStore>(folder_ / "store"),
                                 .timeout = 20s})
          .key;
    }));
  }
  const std::string key = keys[0].get();
  EXPECT_EQ(key.size(), 32u);
  for (const int rank : {1, 2}) EXPECT_EQ(keys[static_cast<std::size_t>(rank)].get(), key);
}

}  // namespace
}  // namespace lockstep
