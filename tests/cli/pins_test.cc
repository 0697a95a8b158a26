// What may not move by accident: the recipe hash and the weights of each kind of data and model, the lines of a log,
// the bytes of a receipt and of a page. A change that moves one on purpose puts the new value here, and a line into
// CHANGELOG.md. No value depends on the processor (LOCKSTEP_SIMD=scalar) or on the versions of other libraries.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <regex>

#include "lockstep/base/sha256.h"
#include "tests/cli/train_testing.h"
#include "tests/data/npy_writing.h"

namespace lockstep {
namespace {

std::string sha256(const std::string& bytes) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(bytes)));
  return hash.hex();
}

// A color PNG whose bytes no library decides: its pixels are not packed. `rgb` has row after row.
std::string plain_png(int height, int width, const std::string& rgb) {
  const auto number = [](std::uint64_t value, int bytes) {
    std::string text;
    for (int i = bytes - 1; i >= 0; --i) text += static_cast<char>(value >> 8 * i);
    return text;
  };
  const auto of = [](auto checksum, std::uint64_t start, const std::string& bytes) {
    return checksum(start, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size()));
  };
  const auto chunk = [&](const std::string& kind, const std::string& content) {
    return number(content.size(), 4) + kind + content + number(of(crc32, 0, kind + content), 4);
  };
  const auto row = static_cast<std::size_t>(3 * width);
  std::string rows;
  for (std::size_t y = 0; y < static_cast<std::size_t>(height); ++y) rows += '\0' + rgb.substr(y * row, row);
  const std::string size = bytes_of(std::vector{static_cast<std::uint16_t>(rows.size())}),
                    inverted = bytes_of(std::vector{static_cast<std::uint16_t>(~rows.size())});
  const std::string stored = "\x78\x01\x01" + size + inverted + rows + number(of(adler32, 1, rows), 4);
  return "\x89PNG\r\n\x1a\n" +
         chunk("IHDR", number(static_cast<std::uint64_t>(width), 4) + number(static_cast<std::uint64_t>(height), 4) +
                           std::string("\x08\x02\0\0\0", 5)) +
         chunk("IDAT", stored) + chunk("IEND", "");
}

// The recipe names the decoder of JPEG, and the chain of a receipt's links begins with the recipe.
nlohmann::ordered_json without_decoder(nlohmann::ordered_json receipt) {
  auto& predicate = receipt.at("predicate");
  auto& transforms = predicate.at("recipe").at("transforms");
  const std::string text = transforms.get<std::string>();
  transforms = text.substr(0, text.find("; libjpeg-turbo "));
  predicate.erase("final");
  for (auto& link : predicate.at("links")) link.erase(3);
  return receipt;
}

void cut(std::string& text, const std::string& from, const std::string& to) {
  const std::size_t begin = text.find(from), end = text.find(to, begin);
  if (begin == std::string::npos || end == std::string::npos) throw std::runtime_error("no " + from + " … " + to);
  text.erase(begin, end - begin);
}

// Without times and speeds (status, tiles, curve, column, data, timeline), the machine, and the packed bytes of
// pictures, which zlib decides.
std::string lasting_part_of(std::string page) {
  for (const char* tile : {"training time", "examples per second"}) {
    page = std::regex_replace(page, std::regex(fmt::format("<div class=\"tile\"><b>.*</b><span>{}</span></div>", tile)),
                              "");
  }
  cut(page, "<p class=\"status\">", "</p>");
  const std::size_t speed =
      page.find("<svg", page.rfind("<div class=\"card\">", page.find("data-name=\"examples per")));
  page.erase(speed, page.find("</svg>", speed) - speed);
  page = std::regex_replace(page, std::regex("(<tr><td>\\d+</td>)<td>\\d+\\.\\d</td>"), "$1");
  cut(page, "<h2>Timeline</h2>", "<h2>Model</h2>");
  cut(page, "<h2>Machine</h2>", "<script type=");
  page = std::regex_replace(page, std::regex("data:image/png;base64,[A-Za-z0-9+/=]+"), "");
  const std::string begin = "id=\"run\">";
  const std::size_t at = page.find(begin) + begin.size(), size = page.find("</script>", at) - at;
  nlohmann::json data = nlohmann::json::parse(page.substr(at, size));
  for (auto& step : data.at("steps")) step.erase(5);
  return page.replace(at, size, data.dump());
}

class Pins : public Train {
 protected:
  // Of a run of two steps: the start of the recipe's hash, and of the weights' hash.
  std::string run(Arguments arguments, const Arguments& more) {
    const std::filesystem::path log = folder_ / "log";
    std::filesystem::remove(log);
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.insert(arguments.end(), {"--max-steps", "2", "--log", log});
    const ToolResult result = run_tool(arguments);
    if (result.status != 0) return result.err;
    return fmt::format("{:.12} {:.12}", events(log, "start").at(0).at("recipe").get<std::string>(),
                       events(log, "end").at(0).at("weights_sha256").get<std::string>());
  }
  std::string of_fashion(const Arguments& more) { return run(train_arguments(data_, more), {}); }
  std::string of_data(const std::string& path, const Arguments& more = {}) {
    return run({"train", "--data", path, "--batch-size", "16", "--threads-per-shard", "1"}, more);
  }
  std::string table(const std::string& name, bool classes) {
    std::string text = "x,y,color,target\n";
    for (int i = 0; i < 60; ++i) {
      const int x = i * 7 % 20;
      text += fmt::format("{},{},{},{}\n", x, i * 3 % 11, i % 3 == 0 ? "red" : "blue",
                          classes ? (x > 9 ? "large" : "small") : fmt::format("{}.5", 10 * x + 3));
    }
    return folder_.write(name, text);
  }
  // Pictures of 3 x 12 x 12 bytes, and labels.
  static std::string pictures(int n) {
    std::string bytes;
    for (int i = 0; i < n * 3 * 144; ++i) bytes += static_cast<char>(i * 31 % 251);
    return npy("|u1", fmt::format("({}, 3, 12, 12)", n), bytes);
  }
  static std::string labels(int n) {
    std::vector<std::int64_t> values;
    for (int i = 0; i < n; ++i) values.push_back(i % 4);
    return npy("<i8", fmt::format("({},)", n), bytes_of(values));
  }
  std::string text() {
    std::string all;
    for (int i = 0; i < 20; ++i) all += "the cat sat on the mat and the dog ran. ";
    return folder_.write("text.txt", all);
  }
};

TEST_F(Pins, FashionMnist) {
  EXPECT_EQ(of_fashion({}), "4ff2c8d00192 0fcee2132d08");
  EXPECT_EQ(of_fashion({"--model", "lenet"}), "a150105ce582 9749ca7473e6");
  EXPECT_EQ(of_fashion({"--model", "resnet18", "--batch-size", "4"}), "73861d2260fa f252678ae508");
  EXPECT_EQ(of_fashion({"--optimizer", "adamw", "--schedule", "cosine", "--label-smoothing", "0.1"}),
            "8d6921eb8626 456975b12237");
}

TEST_F(Pins, Tables) {
  EXPECT_EQ(of_data(table("classes.csv", true)), "6e8dfaa6a880 4279248a0100");
  EXPECT_EQ(of_data(table("numbers.csv", false)), "a107a48062d8 3cf6540384ca");
}

TEST_F(Pins, Arrays) {
  folder_.write("arrays/x.npy", pictures(40));
  folder_.write("arrays/y.npy", labels(40));
  EXPECT_EQ(of_data(folder_ / "arrays", {"--model", "lenet"}), "1c0ebcdf3ac2 47dc6c8c8e56");
  const std::filesystem::path npz =
      folder_.write("a.npz", zip({{"x.npy", pictures(40)}, {"y.npy", labels(40)}}, false));
  EXPECT_EQ(of_data(npz, {"--model", "mlp"}), "1c37af4bbcd0 245ce9c905ba");
}

TEST_F(Pins, IdxFolders) {
  EXPECT_EQ(of_data(data_.path(), {"--format", "idx", "--model", "lenet"}), "453880295e15 beef9f2980a2");
  // One training has one recipe, however its data are named.
  const Arguments adam{"--model", "lenet", "--optimizer", "adam", "--lr", "0.001"};
  Arguments idx = adam;
  idx.insert(idx.end(), {"--format", "idx"});
  EXPECT_EQ(of_data(data_.path(), idx), of_data(data_.path(), adam));
}

TEST_F(Pins, Texts) {
  const Arguments small{"--context", "8", "--layers", "1", "--width", "8"};
  const auto with = [&](Arguments more) {
    more.insert(more.end(), small.begin(), small.end());
    return more;
  };
  EXPECT_EQ(of_data(text(), with({"--model", "gpt", "--heads", "2"})), "8459aed7a173 efdde40c6f9f");
  EXPECT_EQ(of_data(text(), with({"--model", "lstm"})), "b30efaa774cd 257dab42d8e4");
}

// Of several sizes, so that they are resized.
TEST_F(Pins, Pictures) {
  for (int i = 0; i < 40; ++i) {
    const int height = 20 + i % 7, width = 20 + i % 5;
    std::string rgb;
    for (int k = 0; k < 3 * height * width; ++k) rgb += static_cast<char>(i % 2 == 0 ? 255 - k * 5 % 200 : k * i % 256);
    folder_.write(fmt::format("pictures/{}/{}.png", i % 2 == 0 ? "cat" : "dog", i), plain_png(height, width, rgb));
  }
  const std::string result = of_data(folder_ / "pictures", {"--model", "lenet", "--augment", "light", "--save",
                                                            folder_ / "run", "--receipt-every", "1"});
  EXPECT_EQ(result.substr(result.find(' ') + 1), "e80dc39d10c7");
  const nlohmann::ordered_json receipt =
      without_decoder(nlohmann::ordered_json::parse(folder_.read("run/receipt.json")));
  const auto& predicate = receipt.at("predicate");
  const auto& data = predicate.at("data");
  EXPECT_EQ(data.at("train").at("root"), "e337667b2d0023c225c98cf55cb57538d0cb3534ceb48ef4cf3293bed12fdb78");
  EXPECT_EQ(data.at("test").at("root"), "e5bab301682010e6c507d7f5d479cb6977ea9ee3b525a5430f53f26bb3ecb432");
  EXPECT_EQ(sha256(predicate.at("recipe").dump()), "8abdfdbe8cb9816ae92d3b8e76a39fb013e11897cf5f1f3477ba1fc2ff3e9008");
  EXPECT_EQ(sha256(receipt.dump()), "d247c19e4d797bfe5f2365596a741e8a4278d15091b55523d653660e83657af5") << receipt;
}

// All but times and speeds.
TEST_F(Pins, LinesOfALog) {
  const std::filesystem::path log = folder_ / "lines";
  ASSERT_EQ(train({"--model", "lenet", "--metrics", "top3_accuracy,confusion_matrix", "--log", log}).status, 0);
  std::string text;
  for (nlohmann::json line : read_log(log)) {
    for (const char* name : {"seconds", "data_seconds", "images_per_second"}) {
      if (line.contains(name)) line[name] = 0;
    }
    text += line.dump() + '\n';
  }
  EXPECT_EQ(sha256(text), "aa1ae3f79d50297af071d8cb3932a6e82f76b8c3b5b3997c2c4e0b149e9510d6") << text;
}

TEST_F(Pins, BytesOfAReceipt) {
  ASSERT_EQ(train({"--model", "lenet", "--save", folder_ / "run", "--receipt-every", "2"}).status, 0);
  const std::string receipt = folder_.read("run/receipt.json");
  EXPECT_EQ(sha256(receipt), "604dcc4440a7c0b22e8f6c248c7b2788aace1da1499cc44252be68059689430f") << receipt;
}

TEST_F(Pins, BytesOfAPage) {
  ASSERT_EQ(train({"--model", "lenet", "--save", folder_ / "run"}).status, 0);
  const std::string page = lasting_part_of(folder_.read("run/report.html"));
  EXPECT_EQ(sha256(page), "d8709fcb19862f7efa026618c8d6e79fe3248296a1ad5ffddc143c39beda2d75") << page;
}

}  // namespace
}  // namespace lockstep
