// Names from outside reach no terminal as they are: it would obey their control characters.
#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/data/formats/image.h"
#include "tests/cli/tool.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// ESC, BEL, backspace, DEL, and CSI (U+009B) as UTF-8 and as a byte.
constexpr std::string_view kBad = "\x1b]0;x\a\b\x7f\u009b2J\x9bm",
                           kShown = "\\x1b]0;x\\x07\\x08\\x7f\\xc2\\x9b2J\\x9bm";

void expect_harmless(const std::string& text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
    const bool high = byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    EXPECT_FALSE(control || high || byte == 0x9b) << fmt::format("{:02x} at {} of {}", byte, i, text);
  }
}

void expect_harmless(const ToolResult& result) {
  expect_harmless(result.out);
  expect_harmless(result.err);
}

// The tool's standard output, on a terminal. The terminal itself adds CR before LF.
std::string on_terminal(const Arguments& arguments) {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  EXPECT_TRUE(master >= 0 && ::grantpt(master) == 0 && ::unlockpt(master) == 0);
  const std::string name = ::ptsname(master);
  const int open = ::open(name.c_str(), O_RDWR | O_NOCTTY);  // until all is read
  std::string text;
  std::jthread reader([&] {
    char part[4096];
    for (ssize_t n = 0; (n = ::read(master, part, sizeof part)) > 0;) text.append(part, static_cast<std::size_t>(n));
  });
  const ToolResult result = run_tool(arguments, {.out = name});
  EXPECT_EQ(result.status, 0) << result.err;
  expect_harmless(result.err);
  ::close(open);
  reader.join();
  ::close(master);
  std::erase(text, '\r');
  return text;
}

class Terminal : public ::testing::Test {
 protected:
  // Two classes by x; their names, the column's, and the file's are a stranger's.
  std::string table(const std::string& name) {
    std::string text = fmt::format("x,y{},kind{}\n", kBad, kBad);
    for (int i = 0; i < 60; ++i) text += fmt::format("{},{},{}{}\n", i % 10, i % 3, i % 10 > 4 ? "a" : "b", kBad);
    return folder_.write(name, text).string();
  }

  TemporaryFolder folder_;
  std::string bad_ = std::string(kBad);
};

TEST_F(Terminal, ObeysNoTable) {
  const std::string run = folder_ / "run", data = table("t" + bad_ + ".csv");
  const ToolResult trained =
      run_tool({"train", "--data", data, "--save", run, "--epochs", "2", "--metrics", "confusion_matrix", "--summary"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  expect_harmless(trained);
  EXPECT_THAT(trained.out, HasSubstr(fmt::format("t{}.csv", kShown)));
  EXPECT_THAT(trained.out, HasSubstr("confusion_matrix"));
  EXPECT_THAT(trained.out, HasSubstr(fmt::format("a{}", kShown)));

  const ToolResult evaluated = run_tool({"eval", "--run", run, "--data", data});
  ASSERT_EQ(evaluated.status, 0) << evaluated.err;
  expect_harmless(evaluated);
  EXPECT_THAT(evaluated.out, HasSubstr(fmt::format("a{}", kShown)));

  // For a program the names are exact, for a terminal they are not.
  const ToolResult csv = run_tool({"predict", "--run", run, data});
  ASSERT_EQ(csv.status, 0) << csv.err;
  EXPECT_EQ(lines(csv.out)[0], fmt::format("example,class,probability,a{},b{}", kBad, kBad));
  EXPECT_THAT(lines(csv.out)[1], HasSubstr(data + ":1,"));
  for (const char* format : {"csv", "json"}) {
    const std::string shown = on_terminal({"predict", "--run", run, "--format", format, data});
    expect_harmless(shown);
    EXPECT_EQ(lines(shown).size(), format == std::string("csv") ? 61U : 60U);
  }
  EXPECT_THAT(on_terminal({"predict", "--run", run, data}),
              HasSubstr(fmt::format("example,class,probability,a{},b{}\n", kShown, kShown)));
  expect_harmless(on_terminal({"eval", "--run", run, "--data", data}));
  expect_harmless(run_tool({"export", "--run", run, folder_ / ("net" + bad_ + ".onnx")}));
}

TEST_F(Terminal, ObeysNoPictures) {
  std::vector<std::uint8_t> pixels(12 * 12);
  for (const char* name : {"a", "b"}) {
    std::filesystem::create_directories(folder_ / ("data/" + (name + bad_)));
    for (int i = 0; i < 12; ++i) {
      std::fill(pixels.begin(), pixels.end(), static_cast<std::uint8_t>(name[0] == 'a' ? i : 255 - i));
      write_png(folder_ / fmt::format("data/{}{}/{}{}.png", name, kBad, i, kBad),
                Tensor::from(std::span<const std::uint8_t>(pixels), {1, 12, 12}));
    }
  }
  const std::string run = folder_ / "run", data = folder_ / "data";
  const Arguments train{"train", "--data", data, "--model", "mlp", "--save", run, "--epochs", "1"};
  const ToolResult trained = run_tool(train);
  ASSERT_EQ(trained.status, 0) << trained.err;
  expect_harmless(trained);
  const ToolResult evaluated = run_tool({"eval", "--run", run, "--data", data, "--worst", "3"});
  ASSERT_EQ(evaluated.status, 0) << evaluated.err;
  expect_harmless(evaluated);
  EXPECT_THAT(evaluated.out, HasSubstr(fmt::format("{}.png: ", kShown)));

  folder_.write(fmt::format("data/a{}/broken{}.png", kBad, kBad), "no picture");
  for (const Arguments& command : {train, Arguments{"eval", "--run", run, "--data", data}}) {
    const ToolResult failed = run_tool(command);
    EXPECT_EQ(failed.status, 1);
    expect_harmless(failed);
    EXPECT_THAT(failed.err, HasSubstr(fmt::format("broken{}.png", kShown)));
  }
}

TEST_F(Terminal, ObeysNoErrors) {
  const std::string missing = folder_ / ("none" + bad_);
  folder_.write("config.toml", fmt::format("lr = 0.1\n\"key{}\" = 1\n", kBad));
  folder_.write("run/run.json", fmt::format("{{\"version\": \"{}\"}}", kBad));
  for (const Arguments& command : std::vector<Arguments>{{"train", "--data", missing},
                                                         {"train", "--model", bad_},
                                                         {"train", bad_},
                                                         {bad_},
                                                         {"train", "--config", folder_ / "config.toml"},
                                                         {"train", "--devices", bad_},
                                                         {"eval", "--run", missing},
                                                         {"eval", "--run", folder_ / "run"},
                                                         {"predict", "--run", missing, missing},
                                                         {"predict", "--run", folder_ / "run", missing},
                                                         {"export", "--run", missing, missing},
                                                         {"audit", missing, "--run", missing},
                                                         {"sweep", "--results", missing, "--lr", bad_, "--", "train"},
                                                         {"verify", "--layouts", bad_},
                                                         {"graph", "--out", missing},
                                                         {"launch", "--nproc-per-node", "1", "--", missing}}) {
    const ToolResult result = run_tool(command);
    EXPECT_NE(result.status, 0);
    EXPECT_NE(result.err, "");
    expect_harmless(result);
  }
}

}  // namespace
}  // namespace lockstep
