// What may not move by accident: the recipe hash and the weights of each kind of data and model, the lines of a log,
// the bytes of a receipt. A change that moves one on purpose puts the new value here, and a line into CHANGELOG.md.
#include <fmt/core.h>
#include <gtest/gtest.h>

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
  EXPECT_EQ(of_data(text(), with({"--model", "gpt", "--heads", "2"})), "8459aed7a173 70a133ba5dc1");
  EXPECT_EQ(of_data(text(), with({"--model", "lstm"})), "b30efaa774cd 257dab42d8e4");
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
  EXPECT_EQ(sha256(receipt), "838be1d00a8e2fcedcff1feecca5097d7fd899a94e5a323e4240a0a811584cd9") << receipt;
}

}  // namespace
}  // namespace lockstep
