// From a table, or from pictures, to predictions.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <regex>
#include <set>
#include <tuple>
#include <vector>

#include "lockstep/data/formats/image.h"
#include "tests/cli/tool.h"
#include "tests/data/npy_writing.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class OwnData : public ::testing::Test {
 protected:
  // Two numbers and a color; the kind follows from x and the color, the price is 10 x + 3.
  std::string table(const std::string& name, const std::string& target, int rows, bool with_target = true) {
    std::string text = fmt::format("x,y,color{}{}\n", with_target ? "," : "", with_target ? target : "");
    for (int i = 0; i < rows; ++i) {
      const int x = i * 7 % 20, y = i * 3 % 11;
      const char* color = i % 3 == 0 ? "red" : "blue";
      text += fmt::format("{},{},{}", x, y, color);
      if (with_target && target == "kind") text += x > 9 ? ",large" : ",small";
      if (with_target && target == "price") text += fmt::format(",{}.5", 10 * x + 3);
      text += '\n';
    }
    folder_.write(name, text);
    return folder_ / name;
  }
  ToolResult train(const std::string& data, const Arguments& more = {}) {
    Arguments all{"train", "--data", data};
    all.insert(all.end(), more.begin(), more.end());
    return run_tool(all);
  }
  TemporaryFolder folder_;
};

TEST_F(OwnData, ATableWithClasses) {
  const std::string run = folder_ / "run";
  const ToolResult trained = train(table("t.csv", "kind", 200), {"--save", run, "--epochs", "30", "--lr", "0.01"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_THAT(lines(trained.out)[0], HasSubstr("large 100, small 100"));
  EXPECT_THAT(trained.out, HasSubstr("batch 32, adam at 0.01"));

  const ToolResult csv = run_tool({"predict", "--run", run, table("new.csv", "kind", 20, false)});
  ASSERT_EQ(csv.status, 0) << csv.err;
  const auto rows = lines(csv.out);
  ASSERT_EQ(rows.size(), 21U);
  EXPECT_EQ(rows[0], "example,class,probability,large,small");
  EXPECT_THAT(rows[1], HasSubstr("new.csv:1,small,"));
  int right = 0;
  for (int i = 0; i < 20; ++i) {
    right += rows[static_cast<std::size_t>(i + 1)].find(i * 7 % 20 > 9 ? ",large," : ",small,") != std::string::npos;
  }
  EXPECT_GE(right, 19);
  const ToolResult json = run_tool({"predict", "--run", run, "--format", "json", folder_ / "new.csv"});
  const auto first = nlohmann::json::parse(lines(json.out).at(0));
  EXPECT_EQ(first.at("class").get<std::string>(), "small");
  EXPECT_NEAR(first.at("probabilities").at("small").get<double>() + first.at("probabilities").at("large").get<double>(),
              1, 1e-5);

  const ToolResult exported = run_tool({"export", "--run", run, folder_ / "table.onnx"});
  EXPECT_THAT(exported.out, HasSubstr("table.onnx: input [batch, 3] -> probabilities [batch, 2]\n")) << exported.err;
  EXPECT_THAT(folder_.read("table.onnx"), HasSubstr("[\"large\",\"small\"]"));
  EXPECT_THAT(run_tool({"export", "--run", run, "--pixels", folder_ / "no.onnx"}).err,
              HasSubstr("--pixels: only for pictures; this run takes [3]"));

  const std::string picture = folder_ / "confusion.svg";
  const ToolResult eval =
      run_tool({"eval", "--run", run, "--data", folder_ / "t.csv", "--confusion", picture, "--worst", "2"});
  ASSERT_EQ(eval.status, 0) << eval.err;
  EXPECT_THAT(eval.out, HasSubstr("of 200)\nclass  precision  recall  examples\nlarge"));
  EXPECT_THAT(eval.out, HasSubstr("\nlargest losses:\n  "));
  EXPECT_THAT(folder_.read("confusion.svg"), HasSubstr(">small</text>"));
  EXPECT_THAT(run_tool({"eval", "--run", run, "--data", folder_ / "new.csv"}).err, HasSubstr("has no labels"));
  EXPECT_THAT(run_tool({"eval", "--run", run, "--data", folder_ / "t.csv", "--model", "mlp"}).err,
              HasSubstr("--model: not with --run"));

  // The run repeats, and knows other data.
  const ToolResult again = run_tool({"train", "--config", run + "/run.toml"});
  EXPECT_EQ(lines(again.out).at(2), lines(trained.out).at(2)) << again.err;
  table("t.csv", "kind", 210);
  EXPECT_THAT(train(folder_ / "t.csv", {"--save", run, "--epochs", "31", "--lr", "0.01", "--resume", run}).err,
              HasSubstr("training data"));
}

// A folder of mixed pictures of three classes, each with a bar of its own: lying, standing, and slanting.
std::string bars(const TemporaryFolder& folder, int of_each) {
  for (const std::string kind : {"lying", "standing", "slanting"}) {
    std::filesystem::create_directories(folder / ("bars/" + kind));
    for (int i = 0; i < of_each; ++i) {
      const std::int64_t channels = i % 5 == 0 ? 1 : 3, height = 24 + i % 7, width = 24 + i % 5, at = 6 + i % 12;
      std::vector<std::uint8_t> pixels(static_cast<std::size_t>(channels * height * width), 20);
      for (std::int64_t c = 0; c < channels; ++c) {
        for (std::int64_t y = 0; y < height; ++y) {
          for (std::int64_t x = 0; x < width; ++x) {
            const std::int64_t off = kind == "lying" ? y - at : kind == "standing" ? x - at : x - y - at + 12;
            if (off >= 0 && off < 4) pixels[static_cast<std::size_t>((c * height + y) * width + x)] = 230;
          }
        }
      }
      const Tensor image = Tensor::from(pixels, {channels, height, width});
      const std::string file = folder / fmt::format("bars/{}/{}", kind, i);
      if (i % 2 == 0) {
        write_png(file + ".png", image);
      } else {
        write_jpeg(file + ".jpg", image);
      }
    }
  }
  return folder / "bars";
}

TEST_F(OwnData, AFolderOfPictures) {
  const std::string data = bars(folder_, 40), run = folder_ / "run";
  const Arguments options{"--model", "lenet", "--image-size", "28", "--epochs", "6", "--augment", "light"};
  const auto with = [&](Arguments more) {
    more.insert(more.begin(), options.begin(), options.end());
    return more;
  };
  const ToolResult trained = train(data, with({"--save", run}));
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_THAT(
      lines(trained.out)[0],
      HasSubstr("pictures, color, 24 x 24 to 30 x 28 pixels (height x width), used as 28 x 28, augmented (light); "
                "lying 40, slanting 40, standing 40"));
  const ToolResult predicted = run_tool({"predict", "--run", run, data + "/lying/1.jpg", data + "/standing/2.png"});
  const auto rows = lines(predicted.out);
  ASSERT_EQ(rows.size(), 3U) << predicted.err;
  EXPECT_THAT(rows[1], StartsWith(data + "/lying/1.jpg,lying,"));
  EXPECT_THAT(rows[2], StartsWith(data + "/standing/2.png,standing,"));
  const ToolResult exported = run_tool({"export", "--run", run, "--pixels", "--logits", folder_ / "net.onnx"});
  EXPECT_THAT(exported.out, HasSubstr("net.onnx: pixels [batch, 28, 28, 3] -> logits [batch, 3]\n")) << exported.err;
  const ToolResult eval = run_tool({"eval", "--run", run, "--data", data});
  ASSERT_THAT(eval.out, StartsWith("test acc: ")) << eval.err;
  EXPECT_GE(std::stod(eval.out.substr(10)), 0.9) << eval.out;

  // One hash, whatever computes and whatever loads; the run's own options repeat it.
  const auto weights = [&](const ToolResult& result) {
    EXPECT_EQ(result.status, 0) << result.err;
    const std::string bytes = folder_.read("w.safetensors");
    std::filesystem::remove(folder_ / "w.safetensors");
    return bytes;
  };
  const std::string file = folder_ / "w.safetensors";
  const std::string expected = weights(train(data, with({"--export", file, "--workers", "1"})));
  EXPECT_EQ(weights(train(data, with({"--export", file, "--num-devices", "2", "--workers", "8"}))), expected);
  EXPECT_EQ(weights(run_tool({"train", "--config", run + "/run.toml", "--export", file})), expected);
  EXPECT_THAT(train(data, {"--image-size", "0"}).err, HasSubstr("--image-size: Value 0 not in range"));
  EXPECT_THAT(train(table("t.csv", "kind", 50), {"--augment", "light"}).err,
              HasSubstr("expected pictures for augmentation"));

  // The run's own validation part, as it was tested in training.
  const std::string last = lines(trained.out).back();
  const ToolResult own = run_tool({"eval", "--run", run, "--worst", "1"});
  ASSERT_THAT(own.out, StartsWith("test acc: ")) << own.err;
  EXPECT_EQ(fmt::format("{:.2f}", std::stod(own.out.substr(10))), last.substr(10, 4)) << own.out;
  EXPECT_THAT(own.out, ::testing::Not(HasSubstr("of 120)")));
  std::filesystem::rename(folder_ / "bars/lying/1.jpg", folder_ / "bars/lying/one.jpg");
  EXPECT_THAT(run_tool({"eval", "--run", run}).err, HasSubstr("is not what it was in training: --data PATH evaluates"));

  // Broken pictures.
  folder_.write("bars/lying/broken.jpg", "x");
  EXPECT_THAT(train(data).err, HasSubstr("; --skip-broken leaves such files out"));
  EXPECT_THAT(run_tool({"predict", "--run", run, data + "/lying"}).err,
              HasSubstr("--skip-broken leaves such files out"));
  const ToolResult rest = run_tool({"predict", "--run", run, "--skip-broken", data + "/lying"});
  EXPECT_THAT(rest.err, HasSubstr("lying: skipped 1 broken example\n"));
  EXPECT_EQ(lines(rest.out).size(), 41U);
}

// A net that has learned numbers from 0 to 1 would see bytes as something else.
TEST_F(OwnData, PixelsOfAnExportAreBytes) {
  std::vector<float> x(std::size_t{20} * 64);
  std::vector<std::int64_t> y(20);
  for (std::size_t i = 0; i < y.size(); ++i) {
    y[i] = static_cast<std::int64_t>(i % 2);
    x[64 * i + i] = static_cast<float>(y[i]);
  }
  folder_.write("arrays/x_train.npy", npy("<f4", "(20, 8, 8)", bytes_of(x)));
  folder_.write("arrays/y_train.npy", npy("<i8", "(20,)", bytes_of(y)));
  const std::string run = folder_ / "run";
  const ToolResult trained = train(folder_ / "arrays", {"--save", run, "--model", "mlp", "--epochs", "1"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_THAT(run_tool({"export", "--run", run, "--pixels", folder_ / "no.onnx"}).err,
              HasSubstr("--pixels: the pictures of this run have elements of f32, expected bytes"));
}

TEST_F(OwnData, TransformsByName) {
  const std::string data = bars(folder_, 8);
  const auto weights = [&](Arguments more) {
    const Arguments options{"--model",      "lenet", "--image-size",     "28",  "--epochs",       "2",
                            "--batch-size", "8",     "--shards",         "2",   "--val-split",    "0.2",
                            "--augment",    "light", "--rotation",       "10",  "--color-jitter", "0.2,0.2,0.2,0.02",
                            "--flip",       "0",     "--random-erasing", "0.5", "--log",          folder_ / "log"};
    more.insert(more.begin(), options.begin(), options.end());
    const ToolResult result = train(data, more);
    EXPECT_EQ(result.status, 0) << result.err;
    const auto end = events(folder_ / "log", "end");
    return end.empty() ? "none" : end.back().at("weights_sha256").get<std::string>();
  };
  const std::string run = folder_ / "run", resumed = folder_ / "resumed";
  const Arguments mixed{"--mixup", "0.4", "--normalize", "imagenet"};
  const auto with = [&](Arguments more) {
    more.insert(more.begin(), mixed.begin(), mixed.end());
    return more;
  };
  const std::string expected = weights(with({"--save", run}));
  EXPECT_EQ(weights(with({"--num-devices", "2"})), expected);
  weights(with({"--save", resumed, "--max-steps", "4"}));
  EXPECT_EQ(weights(with({"--save", resumed, "--resume", resumed})), expected);
  EXPECT_NE(weights({"--cutmix", "0.4", "--normalize", "imagenet"}), expected);
  EXPECT_NE(weights({"--mixup", "0.4", "--mean", "0.5", "--std", "0.25"}), expected);
  const std::string options = folder_.read("run/run.toml");
  for (const char* line : {"\nrotation = 10\n", "\nflip = 0\n", "\nmixup = 0.4\n", "\nnormalize = \"imagenet\"\n",
                           "\ncolor-jitter = [\"0.2\", \"0.2\", \"0.2\", \"0.02\"]\n"}) {
    EXPECT_THAT(options, HasSubstr(line));
  }
  EXPECT_THAT(train(data, {"--mixup", "1", "--cutmix", "1"}).err, HasSubstr("--cutmix: not with --mixup"));
  EXPECT_THAT(train(data, {"--mixup", "1", "--class-weights", "balanced"}).err, HasSubstr("--mixup: not with"));
  EXPECT_THAT(train(data, {"--mean", "0.5"}).err, HasSubstr("--mean: expected --std, too"));
  EXPECT_THAT(train(data, {"--color-jitter", "1,x"}).err, HasSubstr("--color-jitter: found 'x'"));
  const std::string rows = table("t.csv", "kind", 60);
  EXPECT_THAT(train(rows, {"--cutmix", "1"}).err, HasSubstr("--cutmix: only for pictures with classes"));
  EXPECT_THAT(train(rows, {"--rotation", "1"}).err, HasSubstr("expected pictures for augmentation"));
  EXPECT_THAT(train(rows, {"--normalize", "none"}).err, HasSubstr("expected pictures for --normalize"));
}

TEST_F(OwnData, WhatDecidesTheBitsIsInTheRecipe) {
  const std::string data = bars(folder_, 8);
  const auto recipe = [&](Arguments more) {
    more.insert(more.end(), {"--model", "lenet", "--image-size", "28", "--dry-run"});
    const ToolResult result = train(data, more);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.status == 0 ? lines(result.out).at(2) : result.err;
  };
  const std::vector<Arguments> all{{"--val-split", "0.2"},
                                   {"--val-split", "0.3"},
                                   {"--random-resized-crop", "0.5"},
                                   {"--random-crop", "2"},
                                   {"--flip", "0.5"},
                                   {"--vertical-flip", "0.5"},
                                   {"--rotation", "10"},
                                   {"--color-jitter", "0.2"},
                                   {"--random-erasing", "0.5"},
                                   {"--mixup", "0.2"},
                                   {"--cutmix", "0.2"},
                                   {"--normalize", "imagenet"},
                                   {"--mean", "0.5", "--std", "0.25"},
                                   {"--mean", "0.5", "--std", "0.2"},
                                   {"--mean", "0.4", "--std", "0.2"}};
  std::set<std::string> recipes;
  for (Arguments one : all) {
    if (one[0] != "--val-split") one.insert(one.end(), {"--val-split", "0.2"});
    EXPECT_TRUE(recipes.insert(recipe(one)).second) << one[0];
  }
  EXPECT_TRUE(recipes.contains(recipe({"--val-split", "0.2", "--workers", "3"})));
}

TEST_F(OwnData, FashionMnistHasTransformsAndARun) {
  const SmallData small;
  const std::string run = folder_ / "run";
  const auto fashion = [&](const Arguments& more) { return run_tool(train_arguments(small, more)); };
  const ToolResult trained =
      fashion({"--save", run, "--random-crop", "2", "--rotation", "5", "--normalize", "training", "--lr", "0.05"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const ToolResult own = run_tool({"eval", "--run", run});
  EXPECT_THAT(own.out, HasSubstr(fmt::format(" of {})", SmallData::kTest))) << own.err;
  EXPECT_EQ(fmt::format("{:.2f}", std::stod(own.out.substr(10))), lines(trained.out).back().substr(10, 4));
  EXPECT_EQ(lines(run_tool({"eval", "--run", run, "--data", small.path()}).out).at(0), lines(own.out).at(0));
  EXPECT_EQ(lines(run_tool({"predict", "--run", run, small.path()}).out).size(), SmallData::kTest + 1U);
  const ToolResult again = run_tool({"train", "--config", run + "/run.toml"});
  EXPECT_EQ(lines(again.out).at(1), lines(trained.out).at(1)) << again.err;
  // Weights alone would be measured on other pictures than they learned.
  const std::string weights = run + "/step-00000008/weights.safetensors";
  for (const std::string& start : {run, weights}) {
    EXPECT_THAT(run_tool({"eval", "--init-from", start, "--data", small.path()}).err,
                HasSubstr("learned examples with classes or a normalization of their own, expected --run"));
  }
  // Its validation part is no other one.
  const std::string labels = small.folder().read("t10k-labels-idx1-ubyte");
  small.folder().write("t10k-labels-idx1-ubyte", labels.substr(0, labels.size() - 1) + '\x03');
  EXPECT_THAT(run_tool({"eval", "--run", run}).err, HasSubstr("is not what it was in training"));
  EXPECT_THAT(fashion({"--normalize", "imagenet"}).err, HasSubstr("mean and stddev have 3 and 3 numbers"));
}

TEST_F(OwnData, TheFinderSuggestsOneRate) {
  const std::string data = table("t.csv", "kind", 150);
  const auto suggestion = [&](const Arguments& more) {
    Arguments all{"--find-lr", "40", "--shards", "2"};
    all.insert(all.end(), more.begin(), more.end());
    const ToolResult result = train(data, all);
    EXPECT_EQ(result.status, 0) << result.err;
    return lines(result.out).empty() ? "none" : lines(result.out).back();
  };
  const std::string log = folder_ / "rates.jsonl";
  const std::string one = suggestion({"--log", log, "--plot", folder_ / "rates.svg"});
  EXPECT_THAT(one, StartsWith("suggested: --lr "));
  EXPECT_EQ(suggestion({"--num-devices", "2"}), one);
  EXPECT_EQ(events(log, "rate").at(0).at("learning_rate").get<double>(), 1e-7);
  EXPECT_GT(events(log, "end").at(0).at("suggestion").get<double>(), 1e-7);
  EXPECT_THAT(folder_.read("rates.svg"), HasSubstr("decimal logarithm of the learning rate"));
  EXPECT_THAT(train(data, {"--find-lr", "40", "--save", folder_ / "run"}).err, HasSubstr("--save: not with --find-lr"));
  EXPECT_THAT(train(data, {"--find-lr", "40", "--warmup", "3"}).err,
              HasSubstr("--warmup changes nothing with --find-lr"));
  // The head's rate keeps its ratio to --lr, which therefore has an effect.
  const ToolResult head = train(data, {"--find-lr", "40", "--lr", "0.001", "--head-lr", "0.001"});
  ASSERT_EQ(head.status, 0) << head.err;
  EXPECT_THAT(head.err, ::testing::Not(HasSubstr("--lr changes nothing")));
  const std::string last = lines(head.out).back();
  std::smatch rates;
  ASSERT_TRUE(std::regex_match(last, rates, std::regex("suggested: --lr (\\S+) --head-lr (\\S+)"))) << last;
  EXPECT_EQ(rates[1], rates[2]);
}

TEST_F(OwnData, TheEpochsFollowFromTheExamplesThatTrain) {
  const ToolResult result =
      train(table("t.csv", "kind", 2000), {"--limit-train", "64", "--max-steps", "1", "--save", folder_ / "run"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(folder_.read("run/run.toml"), HasSubstr("\nepochs = 100\n"));
}

TEST_F(OwnData, ATextGoesOn) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "the quick brown fox jumps over the lazy dog. ";
  folder_.write("t.txt", text);
  const std::string run = folder_ / "run", prompt = folder_.write("p.txt", "the quick ");
  const ToolResult trained = train(folder_ / "t.txt", {"--save", run, "--context", "16", "--layers", "1", "--width",
                                                       "16", "--heads", "2", "--epochs", "2"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const ToolResult exported = run_tool({"export", "--run", run, folder_ / "text.onnx"});
  EXPECT_THAT(exported.out, HasSubstr("text.onnx: input [batch, 16] -> probabilities [batch, 16, ")) << exported.err;
  const ToolResult eval = run_tool({"eval", "--run", run});
  EXPECT_THAT(eval.out, HasSubstr("\nperplexity: ")) << eval.err;
  EXPECT_EQ(fmt::format("{:.2f}", std::stod(eval.out.substr(10))), lines(trained.out).back().substr(10, 4));
  const ToolResult more = run_tool({"predict", "--run", run, prompt, "--characters", "5", "--seed", "1"});
  EXPECT_THAT(more.out, StartsWith("the quick ")) << more.err;
  EXPECT_EQ(more.out.size(), 16U);
  EXPECT_EQ(run_tool({"predict", "--run", run, prompt, "--characters", "5", "--seed", "1"}).out, more.out);
  folder_.write("p.txt", "The");
  EXPECT_THAT(run_tool({"predict", "--run", run, prompt}).err, HasSubstr("p.txt: "));
  EXPECT_THAT(run_tool({"predict", "--run", run, prompt, "--format", "csv"}).err, HasSubstr("a text has no columns"));
}

// Pictures of 8 x 12 pixels, five dark ones and twelve light ones to train.
std::string wide_pictures(const TemporaryFolder& folder) {
  for (const auto& [kind, shade, count] : {std::tuple("train/dark", 10, 5), std::tuple("train/light", 200, 12),
                                           std::tuple("val/dark", 20, 2), std::tuple("val/light", 190, 2)}) {
    std::filesystem::create_directories(folder / fmt::format("wide/{}", kind));
    for (int i = 0; i < count; ++i) {
      const std::vector<std::uint8_t> pixels(8 * 12, static_cast<std::uint8_t>(shade + i));
      write_png(folder / fmt::format("wide/{}/{}.png", kind, i), Tensor::from(pixels, {1, 8, 12}));
    }
  }
  return folder / "wide";
}

TEST_F(OwnData, PicturesThatAreNotSquareRepeat) {
  const std::string data = wide_pictures(folder_);
  const ToolResult first =
      train(data, {"--model", "mlp", "--epochs", "1", "--val-split", "0.1", "--save", folder_ / "run"});
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("--val-split changes nothing: " + data + " has a part for tests"));
  const ToolResult other = train(data, {"--model", "mlp", "--epochs", "1", "--val-split", "0.3", "--dry-run"});
  EXPECT_EQ(lines(other.out).at(2), lines(first.out).at(2)) << "nor the recipe";
  const ToolResult again = run_tool({"train", "--config", folder_ / "run/run.toml", "--dry-run"});
  EXPECT_EQ(lines(again.out).at(2), lines(first.out).at(2)) << again.err;
}

TEST_F(OwnData, WhatOnlyNewRowsHave) {
  std::string text = "x,c,k\n";
  for (int i = 0; i < 40; ++i)
    text += fmt::format("{},{},{}\n", i, i % 4 == 0 ? "red" : "blue", i % 2 == 0 ? "\xff" : "b");
  folder_.write("t.csv", text);
  const std::string run = folder_ / "run";
  ASSERT_EQ(train(folder_ / "t.csv", {"--epochs", "1", "--hidden", "4", "--save", run}).status, 0);
  // A target that is not known yet, and a category that eval counts as missing, as training does.
  folder_.write("new.csv", "x,c,k\n1,green,b\n2,red,b\n3,red,\n4,red,new\n");
  const ToolResult refused = run_tool({"predict", "--run", run, "--unseen", "error", folder_ / "new.csv"});
  EXPECT_THAT(refused.err, HasSubstr("\"green\" is none of the 2 categories of training rows"));
  const ToolResult predicted = run_tool({"predict", "--run", run, folder_ / "new.csv"});
  EXPECT_EQ(lines(predicted.out).size(), 5U) << predicted.err;
  EXPECT_THAT(predicted.err, HasSubstr("new.csv: 1 cell without a counterpart in training, taken as missing"));
  const ToolResult known = run_tool({"predict", "--run", run, folder_ / "t.csv"});
  EXPECT_THAT(known.err, ::testing::Not(HasSubstr("counterpart"))) << "nothing to say";
  folder_.write("known.csv", "x,c,k\n1,green,b\n2,red,b\n");
  const ToolResult eval =
      run_tool({"eval", "--run", run, "--data", folder_ / "known.csv", "--confusion", folder_ / "c.svg"});
  EXPECT_THAT(eval.out, HasSubstr("of 2)")) << eval.err;
  EXPECT_THAT(eval.err, HasSubstr("1 cell without a counterpart in training, taken as missing"));
  EXPECT_EQ(folder_.read("c.svg").find('\xff'), std::string::npos) << "a picture is in UTF-8";
}

TEST_F(OwnData, WeightsOfOtherClassesAndColumnsAreNoticed) {
  const auto data = [&](const std::string& name, const std::string& head, const std::string& first) {
    std::string text = head;
    for (int i = 0; i < 20; ++i) text += fmt::format("{},{},{}\n", i, i % 3, i % 2 == 0 ? first : "b");
    folder_.write(name, text);
    return folder_ / name;
  };
  const std::string run = folder_ / "run";
  const Arguments options{"--epochs", "1", "--hidden", "4", "--val-split", "0.3"};
  Arguments save = options, from = options;
  save.insert(save.end(), {"--save", run});
  from.insert(from.end(), {"--init-from", run});
  ASSERT_EQ(train(data("1.csv", "x,y,k\n", "a"), save).status, 0);
  EXPECT_EQ(train(folder_ / "1.csv", from).err.find("learned"), std::string::npos);
  EXPECT_THAT(train(data("2.csv", "x,y,k\n", "c"), from).err,
              HasSubstr("the last layer learned the classes a, b; these data have b, c"));
  EXPECT_THAT(train(data("3.csv", "y,x,k\n", "a"), from).err, HasSubstr("learned other columns or categories"));
}

TEST_F(OwnData, ClassesOfALimitedPart) {
  const std::string data = wide_pictures(folder_);
  // The first ten are five of each class, so all weights are 1.
  const auto losses = [&](const char* weights) {
    const ToolResult result = train(data, {"--model", "mlp", "--epochs", "2", "--limit-train", "10", "--class-weights",
                                           weights, "--log", folder_ / "log"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err.find("have none of"), std::string::npos) << result.err;
    std::vector<double> all;
    for (const auto& step : events(folder_ / "log", "step")) all.push_back(step.at("loss").get<double>());
    return all;
  };
  EXPECT_THAT(losses("balanced"), ::testing::Pointwise(::testing::DoubleNear(1e-5), losses("none")));
  EXPECT_THAT(train(data, {"--model", "mlp", "--epochs", "1", "--limit-train", "5"}).err,
              HasSubstr("--limit-train 5: these examples have none of: light"));
}

TEST_F(OwnData, NumbersToPredict) {
  const std::string run = folder_ / "run";
  const ToolResult trained = train(table("t.csv", "price", 150), {"--save", run, "--hidden", "32", "--lr", "0.01"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_THAT(trained.out, HasSubstr("mean_absolute_error"));
  EXPECT_THAT(trained.out, ::testing::Not(HasSubstr("test acc")));
  EXPECT_THAT(folder_.read("run/run.toml"), HasSubstr("hidden = [\"32\"]"));
  const ToolResult predicted = run_tool({"predict", "--run", run, table("new.csv", "price", 5, false)});
  const auto rows = lines(predicted.out);
  ASSERT_EQ(rows.size(), 6U) << predicted.err;
  EXPECT_EQ(rows[0], "example,value");
  const double value = std::stod(rows[2].substr(rows[2].rfind(',') + 1));
  EXPECT_NEAR(value, 73.5, 10);
  const ToolResult eval = run_tool({"eval", "--run", run, "--data", folder_ / "t.csv"});
  EXPECT_THAT(eval.out, StartsWith("mean_absolute_error: "));
  EXPECT_THAT(eval.out, HasSubstr(", expected "));
}

TEST_F(OwnData, ALastBatchThatBatchNormRefusesIsSaidAtTheStart) {
  const std::string data = bars(folder_, 12), run = folder_ / "run";
  const Arguments small{"--model",       "torchvision:resnet18",
                        "--image-size",  "32",
                        "--limit-train", "9",
                        "--limit-test",  "4",
                        "--epochs",      "1",
                        "--batch-size",  "8"};
  const auto with = [&](Arguments more) {
    more.insert(more.begin(), small.begin(), small.end());
    return more;
  };
  const ToolResult refused = train(data, with({"--save", run}));
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("the last batch of an epoch has 1 sample, so batch norm layer4.0.bn1 would have 1 "
                                     "value per channel, expected more than 1: set --drop-last, another --batch-size"));
  EXPECT_THAT(refused.out, ::testing::Not(HasSubstr("epoch 1")));
  const ToolResult trained = train(data, with({"--drop-last", "--save", run, "--receipt-every", "1"}));
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_THAT(trained.out, HasSubstr("epoch 1"));
  EXPECT_THAT(run_tool({"audit", run + "/receipt.json", "--run", run, "--data", data}).out,
              HasSubstr("1 of 1 steps equal"));
  EXPECT_THAT(train(data, with({"--resume", run})).err,
              HasSubstr("made with --drop-last; this run has no --drop-last"));
}

TEST_F(OwnData, ClassesKeepTheirTexts) {
  std::string text = "a,b,y\n";
  for (int i = 0; i < 90; ++i) text += fmt::format("{},{},{}\n", i, i * 7 % 90, std::array{"007", "7", "42"}[i % 3]);
  folder_.write("codes.csv", text);
  const std::string run = folder_ / "run";
  const ToolResult trained = train(folder_ / "codes.csv", {"--save", run, "--epochs", "1", "--report", "none"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_THAT(lines(trained.out)[0], HasSubstr("007 30, 7 30, 42 30"));
  EXPECT_THAT(lines(run_tool({"predict", "--run", run, folder_ / "codes.csv"}).out)[0],
              HasSubstr("example,class,probability,007,7,42"));
  // Names that differ in a letter of Latin-1.
  text = "a,y\n";
  for (int i = 0; i < 90; ++i) text += fmt::format("{},caf{}\n", i, i % 2 ? "\xe9" : "\xe8");
  folder_.write("latin.csv", text);
  const std::string latin = folder_ / "latin";
  ASSERT_EQ(train(folder_ / "latin.csv", {"--save", latin, "--epochs", "1", "--report", "none"}).status, 0);
  const ToolResult json = run_tool({"predict", "--run", latin, "--format", "json", folder_ / "latin.csv"});
  const auto row = nlohmann::json::parse(lines(json.out)[0]);
  EXPECT_EQ(row["probabilities"].size(), 2U);
  EXPECT_TRUE(row["probabilities"].contains("caf\xc3\xa9")) << json.out;
  // An error comes before the line of names.
  const ToolResult missing = run_tool({"predict", "--run", run, folder_ / "none.csv"});
  EXPECT_EQ(missing.out, "");
  EXPECT_EQ(missing.status, 1);
}

TEST_F(OwnData, WhatDoesNotFitIsNamed) {
  const std::string classes = table("t.csv", "kind", 60), numbers = table("n.csv", "price", 60);
  for (const auto& [arguments, part] : std::vector<std::pair<Arguments, std::string>>{
           {{"--data", classes, "--model", "lenet"}, "--model lenet: "},
           {{"--data", classes, "--hidden", "12,x"}, "--hidden: found 'x'"},
           {{"--data", classes, "--target", "size"}, "size"},
           {{"--data", classes, "--val-split", "0.001"}, "takes for validation, expected more, or a larger share\n"},
           {{"--data", numbers, "--class-weights", "balanced"}, "--class-weights: only for classes"},
           {{"--data", numbers, "--metrics", "perplexity"}, "--metrics: only for classes"},
           {{"--target", "x"}, "--target: only with --data of pictures, tables, or arrays; Fashion-MNIST needs none"},
           {{"--model", "gpt", "--target", "x"},
            "--target: only with --data of pictures, tables, or arrays; gpt reads"},
           {{"--model", "mlp", "--heads", "2"}, "--heads: only with --model gpt, not mlp"},
           {{"--data", numbers, "--context", "3"}, "--context: only with --model gpt or lstm, not mlp"},
           {{"--data", classes, "--mean", "a", "--std", "1"}, "--mean: found 'a', expected numbers such as 0.5,0.25"},
           {{"--data", classes, "--model", "gpt", "--format", "csv"}, "--model gpt: reads a text, not --format csv"},
           {{"--data", folder_ / "no"}, "--data " + (folder_ / "no").string() + ": No such file or directory"},
           {{"--data", classes, "--delimiter", "ab"}, "--delimiter ab: expected one character, or tab"},
           {{"--data", classes, "--context", "3"}, "--context: only with --model gpt or lstm, not mlp"}}) {
    Arguments all{"train"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const ToolResult result = run_tool(all);
    EXPECT_NE(result.status, 0);
    EXPECT_THAT(result.err, HasSubstr(part));
    EXPECT_EQ(lines(result.err).size(), 1U) << result.err;
  }
  EXPECT_THAT(run_tool({"predict", "--run", folder_ / "none", classes}).err, HasSubstr("there is no such folder"));
  // Without the run, classes and normalization would be those of the new data.
  const ToolResult eval = run_tool({"eval", "--init-from", classes, "--model", "mlp", "--data", classes});
  EXPECT_EQ(eval.status, 2);
  EXPECT_THAT(eval.err, HasSubstr("only --run knows its classes and normalization"));
}

}  // namespace
}  // namespace lockstep
