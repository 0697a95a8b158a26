#include "lockstep/train/log_writer.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>

#include "tests/expect_error.h"
#include "tests/mutate.h"
#include "tests/temporary_folder.h"
#include "tests/unprivileged.h"

namespace lockstep {
namespace {

using nlohmann::json;

TEST(LogWriter, WritesALineAnEventInTheOrderOfItsFields) {
  TemporaryFolder folder;
  LogWriter log(folder / "log.jsonl");
  log.write({{"event", "start"}, {"devices", {"cpu:0"}}, {"shards", 1}, {"parameters", 11175818}});
  log.write({{"event", "step"}, {"step", 1}, {"loss", 2.3026}, {"note", "two\nlines"}});
  // Seen by others while the writer lives.
  EXPECT_EQ(folder.read("log.jsonl"), R"({"event":"start","devices":["cpu:0"],"shards":1,"parameters":11175818})"
                                      "\n"
                                      R"({"event":"step","step":1,"loss":2.3026,"note":"two\nlines"})"
                                      "\n");
}

TEST(LogWriter, NumbersComeBackExactly) {
  TemporaryFolder folder;
  LogWriter log(folder / "log.jsonl");
  const json numbers{0.1,
                     1.0 / 3,
                     1e-310,
                     -0.0,
                     std::numeric_limits<double>::max(),
                     static_cast<double>(0.1f),
                     static_cast<double>(std::numeric_limits<float>::denorm_min()),
                     std::numeric_limits<std::int64_t>::max(),
                     std::numeric_limits<std::uint64_t>::max()};
  log.write({{"numbers", numbers}});
  const json read = json::parse(folder.read("log.jsonl")).at("numbers");
  ASSERT_EQ(read.size(), numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_EQ(read[i].is_number_float(), numbers[i].is_number_float());
    EXPECT_EQ(read[i], numbers[i]);
  }
  EXPECT_TRUE(std::signbit(read[3].get<double>()));
  EXPECT_EQ(read[5].get<float>(), 0.1f);
}

TEST(LogWriter, WhatJsonCannotSayIsNull) {
  TemporaryFolder folder;
  LogWriter log(folder / "log.jsonl");
  log.write({{"nan", std::nan("")}, {"inf", -std::numeric_limits<double>::infinity()}});
  EXPECT_EQ(folder.read("log.jsonl"), "{\"nan\":null,\"inf\":null}\n");
}

TEST(LogWriter, TextThatIsNotUtf8StaysValidJson) {
  TemporaryFolder folder;
  LogWriter log(folder / "log.jsonl");
  log.write({{"path", "a\xff"}});
  EXPECT_EQ(json::parse(folder.read("log.jsonl")).at("path"), "a\uFFFD");
}

TEST(LogWriter, StartsAnewUnlessToldToAppend) {
  TemporaryFolder folder;
  folder.write("log.jsonl", "{\"old\":1}\n");
  LogWriter(folder / "log.jsonl", {.append = true}).write({{"a", 1}});
  EXPECT_EQ(folder.read("log.jsonl"), "{\"old\":1}\n{\"a\":1}\n");
  LogWriter(folder / "log.jsonl").write({{"b", 2}});
  EXPECT_EQ(folder.read("log.jsonl"), "{\"b\":2}\n");
  LogWriter(folder / "new.jsonl", {.append = true}).write({{"c", 3}});
  EXPECT_EQ(folder.read("new.jsonl"), "{\"c\":3}\n");
}

TEST(LogWriter, ATornLastLineStaysALineOfItsOwn) {
  TemporaryFolder folder;
  folder.write("log.jsonl", "{\"a\":1}\n{\"b\":");
  LogWriter(folder / "log.jsonl", {.append = true}).write({{"c", 3}});
  EXPECT_EQ(folder.read("log.jsonl"), "{\"a\":1}\n{\"b\":\n{\"c\":3}\n");
}

TEST(LogWriter, DropsTheEventsThatAreRefused) {
  TemporaryFolder folder;
  const auto keep = [](const json& event) { return !event.contains("b"); };
  const auto append = [&](const std::string& before) {
    folder.write("log.jsonl", before);
    LogWriter(folder / "log.jsonl", {.append = true, .keep = keep}).write({{"c", 3}});
    return folder.read("log.jsonl");
  };
  EXPECT_EQ(append("{\"a\":1}\nnote\n{\"b\": 2}\n{ \"a\":3}\n"), "{\"a\":1}\nnote\n{ \"a\":3}\n{\"c\":3}\n");
  EXPECT_EQ(append("{\"a\":1}\n{\"b\":"), "{\"a\":1}\n{\"c\":3}\n");
  EXPECT_EQ(append("{\"a\":1}\n{\"b\":2}"), "{\"a\":1}\n{\"c\":3}\n");
  EXPECT_EQ(append("{\"a\":1}"), "{\"a\":1}\n{\"c\":3}\n");
  EXPECT_EQ(append(""), "{\"c\":3}\n");
  LogWriter(folder / "new.jsonl", {.append = true, .keep = keep}).write({{"c", 3}});
  EXPECT_EQ(folder.read("new.jsonl"), "{\"c\":3}\n");
  // Nothing else is left behind, and what is no file is left alone.
  EXPECT_EQ(folder.entries(), 2);
  EXPECT_NO_THROW(LogWriter("/dev/null", {.append = true, .keep = keep}).write({{"c", 3}}));
}

// A resumed run may find any lines in its log. It keeps those that it accepts as they are, and those that are no JSON.
TEST(LogWriter, DamagedLinesAreKeptOrDropped) {
  TemporaryFolder folder;
  constexpr std::array<std::string_view, 12> kPiecesOfLogs{
      "{", "}", "[", "\"", "\n", "null", "1", "-1e999", "\"step\"", "99999999999999999999", "\\u0000", "\xff"};
  const std::string whole =
      "{\"event\":\"start\",\"shards\":4}\n{\"event\":\"step\",\"step\":1,\"loss\":2.3}\n"
      "{\"event\":\"step\",\"step\":2,\"loss\":null}\n{\"event\":\"epoch\",\"epoch\":1}\n";
  const auto keep = [](const json& event) {
    const auto step = event.find("step");
    return step == event.end() || !step->is_number_integer() || *step <= 2;
  };
  int changed = 0;
  for (unsigned round = 0; round < 300; ++round) {
    Dice dice(round);
    const std::string before = mutated(whole, dice, {.pieces = kPiecesOfLogs});
    folder.write("log", before);
    LogWriter(folder / "log", {.append = true, .keep = keep}).write({{"c", 3}});
    std::string expected, line;
    for (std::istringstream lines(before); std::getline(lines, line);) {
      const json event = json::parse(line, nullptr, false);
      if (event.is_discarded() ? !lines.eof() : keep(event)) expected += line + "\n";
    }
    ASSERT_EQ(folder.read("log"), expected + "{\"c\":3}\n") << before;
    changed += expected != before;
  }
  EXPECT_GT(changed, 30);
  EXPECT_LT(changed, 270);
  const std::string deep = "{\"a\":" + std::string(200'000, '[') + std::string(200'000, ']') + "}\n";
  folder.write("log", deep);
  LogWriter(folder / "log", {.append = true, .keep = keep}).write({{"c", 3}});
  EXPECT_EQ(folder.read("log"), deep + "{\"c\":3}\n");
  EXPECT_EQ(folder.entries(), 1);
}

// A resumed run may go on with a log whose folder belongs to another user.
TEST(LogWriter, OnlyAFileThatChangesNeedsAWritableFolder) {
  namespace fs = std::filesystem;
  TemporaryFolder folder;
  const fs::path log = folder.write("log.jsonl", "{\"a\":1}\n");
  fs::permissions(log, fs::perms::all);
  fs::permissions(folder.path(),
                  fs::perms::all & ~(fs::perms::owner_write | fs::perms::group_write | fs::perms::others_write));
  {
    const Unprivileged user;
    EXPECT_NO_THROW(LogWriter(log, {.append = true, .keep = [](const json&) { return true; }}).write({{"b", 2}}));
    EXPECT_ERROR(LogWriter(log, {.append = true, .keep = [](const json&) { return false; }}), "Permission denied");
  }
  fs::permissions(folder.path(), fs::perms::owner_all);
  EXPECT_EQ(folder.read("log.jsonl"), "{\"a\":1}\n{\"b\":2}\n");
}

TEST(LogWriter, NamesTheFileItCannotWrite) {
  TemporaryFolder folder;
  EXPECT_ERROR(LogWriter(folder / "none/log.jsonl"),
               (folder / "none/log.jsonl").string() + ": No such file or directory");
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  LogWriter full("/dev/full");
  EXPECT_ERROR(full.write({{"a", 1}}), "log: cannot write /dev/full: No space left on device");
}

}  // namespace
}  // namespace lockstep
