// `lockstep audit`: receipts that `train` wrote, checked in other layouts and on other processors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "lockstep/base/file.h"
#include "lockstep/data/formats/gzip.h"
#include "tests/cli/train_testing.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class AuditTool : public Train {
 protected:
  std::string run() const { return folder_ / "run"; }
  std::string receipt() const { return folder_ / "run/receipt.json"; }
  void train_lenet(const Arguments& more = {}) {
    Arguments arguments{"--model", "lenet", "--save", run(), "--save-every", "3", "--receipt-every", "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ToolResult result = train(arguments);
    ASSERT_EQ(result.status, 0) << result.err;
  }
  ToolResult audit(const Arguments& more = {}, ToolOptions options = {}) {
    Arguments arguments{"audit", receipt()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_tool(arguments, std::move(options));
  }
  void replace_in(const std::filesystem::path& file, const std::string& from, const std::string& to) {
    std::string text = read_file(file, 1 << 20);
    ASSERT_NE(text.find(from), std::string::npos) << text;
    write_file_atomically(file, text.replace(text.find(from), from.size(), to));
  }
};

TEST_F(AuditTool, AnotherLayoutAndInstructionSetFindAllStepsEqual) {
  train_lenet({"--num-devices", "2", "--export", folder_ / "net.safetensors"});
  ToolOptions scalar;
  scalar.environment.emplace_back("LOCKSTEP_SIMD=scalar");
  const ToolResult found = audit({"--steps", "all", "--layout", "2x1"}, scalar);
  EXPECT_EQ(found.status, 0) << found.err;
  EXPECT_EQ(found.err, "");
  EXPECT_EQ(lines(found.out).back(), "8 of 8 steps equal");
  EXPECT_THAT(found.out, HasSubstr("data: 100 training examples, 30 test examples: equal\n"));
  EXPECT_EQ(lines(audit({"--steps", "2", "--data", data_.path()}).out).back(), "2 of 2 steps equal");
  EXPECT_THAT(read_file(receipt(), 1 << 20), HasSubstr("{\"name\":\"net.safetensors\",\"digest\":"));
}

TEST_F(AuditTool, WhatWasChangedIsNamed) {
  const std::string key = folder_ / "key.pem", other = folder_ / "other.pem";
  const auto write_key = [&](const std::string& name, const char* secret, const char* open) {
    folder_.write(name, std::string("-----BEGIN PRIVATE KEY-----\n") + secret + "\n-----END PRIVATE KEY-----\n");
    folder_.write("public-" + name,
                  std::string("-----BEGIN PUBLIC KEY-----\n") + open + "\n-----END PUBLIC KEY-----\n");
  };
  write_key("key.pem", "MC4CAQAwBQYDK2VwBCIEIPHbMfCck0P1HZA4LHU4Buzv1MpziwV+ikw+QIbkhKI1",
            "MCowBQYDK2VwAyEAxMcMk8fqxYOL+ubb2Mmi4CVxKM3hhhQTfBArVNkxPkc=");
  write_key("other.pem", "MC4CAQAwBQYDK2VwBCIEIP+1RdtRZ0c06chSH6wWby1L2kweIarahJ9Q/dSv7/Fy",
            "MCowBQYDK2VwAyEAso5DVeZchHI5wkgYmwjH0g5Cyu09anAlfcxqz4XcOuo=");
  std::filesystem::permissions(key, std::filesystem::perms::owner_read);
  std::filesystem::permissions(other, std::filesystem::perms::owner_read);
  train_lenet({"--sign-key", key, "--max-steps", "4"});
  const Arguments with_key{"--public-key", folder_ / "public-key.pem"};
  const ToolResult good = audit({"--public-key", folder_ / "public-key.pem", "--steps", "1"});
  EXPECT_EQ(good.status, 0) << good.err;
  EXPECT_THAT(good.out, HasSubstr("receipt: 3 links to step 4, signed with key "));
  const auto error = [&](const Arguments& more) {
    const ToolResult found = audit(more);
    EXPECT_EQ(found.status, 1) << found.out;
    return found.err;
  };
  EXPECT_THAT(error({"--public-key", folder_ / "public-other.pem"}), HasSubstr("which is the public key"));
  // The rate of the run's description, and other data.
  replace_in(folder_ / "run/run.json", "\"lr\": ", "\"lr\": 2");
  EXPECT_THAT(error({}), HasSubstr("the recipe differs: learning_rate 0."));
  replace_in(folder_ / "run/run.json", "\"lr\": 2", "\"lr\": ");
  const std::filesystem::path changed = folder_ / "changed";
  std::filesystem::copy(data_.path(), changed);
  const std::filesystem::path packed = changed / "train-images-idx3-ubyte.gz";
  {
    std::ifstream stream(packed, std::ios::binary);
    std::string bytes(1 << 20, '\0');
    bytes.resize(GzipReader(stream, "images").read({reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size()}));
    write_file_atomically(changed / "train-images-idx3-ubyte", bytes);
  }
  std::filesystem::remove(packed);
  for (const char* name : {"train-labels-idx1-ubyte", "train-images-idx3-ubyte"}) {
    const std::filesystem::path file = changed / name;
    std::string bytes = read_file(file, 1 << 20);
    const std::string before = bytes;
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    write_file_atomically(file, bytes);
    EXPECT_THAT(error({"--data", changed}),
                HasSubstr("train example 99 (counted from 0) is not that of the receipt, all"));
    write_file_atomically(file, before);
  }
  // A bit of a weight in a checkpoint.
  const std::filesystem::path weights = folder_ / "run/step-00000004/weights.safetensors";
  std::string bytes = read_file(weights, 1 << 24);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file_atomically(weights, bytes);
  EXPECT_THAT(error({}), HasSubstr("step-00000004/weights.safetensors: SHA-256 is"));
  // A line of the receipt, which is in the signed payload.
  replace_in(receipt(), "\"payload\": \"", "\"payload\": \"ICAg");
  EXPECT_THAT(error({"--public-key", folder_ / "public-key.pem"}), HasSubstr("was changed after it was signed"));
  // Nobody signs it again by going on.
  const ToolResult resumed =
      train({"--model", "lenet", "--save", run(), "--sign-key", key, "--max-steps", "5", "--resume", "auto"});
  EXPECT_EQ(resumed.status, 1);
  EXPECT_THAT(resumed.err, HasSubstr("the receipt of the earlier steps is not signed with"));
}

// run.toml is for people and --config; older runs have their options there alone.
TEST_F(AuditTool, TheOptionsAreThoseOfTheRunsDescription) {
  train_lenet({"--max-steps", "2"});
  const std::string toml = folder_.read("run/run.toml");
  std::filesystem::remove(folder_ / "run/run.toml");
  const ToolResult found = audit({"--steps", "all"});
  EXPECT_EQ(found.status, 0) << found.err;
  std::filesystem::remove(folder_ / "run/run.json");
  EXPECT_THAT(audit().err, HasSubstr("has no run.toml, which says what its data were"));
  folder_.write("run/run.toml", toml);
  EXPECT_EQ(audit({"--steps", "all"}).status, 0);
}

// It would describe other steps than the folder has.
TEST_F(AuditTool, ARefusedOrIdleResumeLeavesTheFolderAsItWas) {
  train_lenet({"--limit-test", "15"});
  const char* const files[] = {"run/run.json", "run/run.toml", "run/receipt.test.leaves"};
  std::map<std::string, std::string> before;
  for (const char* file : files) before[file] = folder_.read(file);
  const auto resume = [&](const Arguments& more, const std::string& tests = "15") {
    Arguments all{"--model", "lenet", "--save", run(), "--resume", run(), "--limit-test", tests};
    all.insert(all.end(), more.begin(), more.end());
    const ToolResult result = train(all);
    for (const char* file : files) EXPECT_EQ(folder_.read(file), before[file]) << file << result.err;
    return result;
  };
  const ToolResult other = resume({"--epochs", "3"}, "5");
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err, HasSubstr("the receipt has other test data"));
  const ToolResult idle = resume({"--epochs", "1"});
  EXPECT_EQ(idle.status, 0) << idle.err;
  EXPECT_THAT(idle.err, HasSubstr("nothing left to do"));
  const ToolResult watching =
      resume({"--epochs", "3", "--metrics", "perplexity", "--watch", "perplexity", "--patience", "1"});
  EXPECT_EQ(watching.status, 1);
  EXPECT_THAT(watching.err, HasSubstr("watch.metric is perplexity, but epoch 1 has ["));
  const ToolResult found = audit({"--steps", "all"});
  EXPECT_EQ(found.status, 0) << found.err;
  EXPECT_EQ(lines(found.out).back(), "8 of 8 steps equal");
}

// Also without --init-from, which --resume excludes.
TEST_F(AuditTool, AResumedRunIsDescribedWithTheWeightsThatItBeganWith) {
  const std::string start = folder_ / "start", other = folder_ / "other";
  ASSERT_EQ(train({"--export", start, "--epochs", "0", "--seed", "5"}).status, 0);
  ASSERT_EQ(train({"--init-from", start, "--epochs", "1", "--save", run()}).status, 0);
  ASSERT_EQ(train({"--resume", run(), "--epochs", "2", "--save", other}).status, 0);
  ASSERT_EQ(train({"--resume", run(), "--epochs", "3", "--save", run()}).status, 0);
  EXPECT_THAT(folder_.read("run/run.toml"), HasSubstr("\nepochs = 3\n"));
  EXPECT_THAT(folder_.read("other/run.toml"), HasSubstr("\nepochs = 2\n"));
  for (const char* folder : {"run", "other"}) {
    EXPECT_THAT(folder_.read(std::string(folder) + "/run.toml"), HasSubstr("init-from = \"" + start + "\"\n"));
    const ToolResult found = run_tool({"audit", folder_ / folder / "receipt.json", "--steps", "all"});
    EXPECT_EQ(found.status, 0) << found.err;
  }
  // The other folder does not say where the weights are.
  std::filesystem::remove(folder_ / "other/run.json");
  std::filesystem::remove(folder_ / "other/run.toml");
  ASSERT_EQ(train({"--resume", other, "--epochs", "3", "--save", other}).status, 0);
  EXPECT_THAT(folder_.read("other/run.toml"), HasSubstr("repeats it, with --init-from of the weights \""));
}

TEST_F(AuditTool, UnusableArgumentsAreRefused) {
  train_lenet({"--max-steps", "2"});
  const auto error = [&](const Arguments& more) {
    const ToolResult found = audit(more);
    EXPECT_EQ(found.status, 2) << found.out;
    return found.err;
  };
  EXPECT_THAT(error({"--steps", "few"}), HasSubstr("--steps few: expected a number of steps, FIRST:LAST, or all"));
  EXPECT_THAT(error({"--steps", "1:3"}), HasSubstr("--steps 1:3: the receipt has the steps 1 to 2"));
  EXPECT_THAT(error({"--layout", "2y"}), HasSubstr("--layout: '2y', expected D"));
  EXPECT_THAT(train({"--sign-key", receipt()}).err, HasSubstr("--sign-key: only with --receipt or --save"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "none.json"));
  ASSERT_EQ(train({"--max-steps", "1", "--save", folder_ / "none", "--receipt", "none"}).status, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "none/receipt.json"));
}

}  // namespace
}  // namespace lockstep
