#include "lockstep/train/tensorboard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <protozero/pbf_reader.hpp>
#include <string>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/data/formats/image.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/runtime/runtime.h"
#include "lockstep/train/event_file.h"
#include "tests/expect_error.h"
#include "tests/file_size_limit.h"
#include "tests/temporary_folder.h"
#include "tests/train/layouts.h"
#include "tests/train/small_job.h"

namespace lockstep::testing {
namespace {

using protozero::pbf_reader;

// What RFC 3720, B.4 gives for 32 bytes of zeros and of ones, and for 0 to 31; masked as TensorFlow does.
TEST(EventFile, ChecksumsAreCastagnolis) {
  const auto masked = [](std::uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8U; };
  EXPECT_EQ(masked_crc32c(std::string(32, '\0')), masked(0x8a9136aa));
  EXPECT_EQ(masked_crc32c(std::string(32, '\xff')), masked(0x62a8ab43));
  std::string rising;
  for (char c = 0; c < 32; ++c) rising += c;
  EXPECT_EQ(masked_crc32c(rising), masked(0x46dd794e));
}

// The records of a file, whose checksums must be right.
std::vector<std::string> records_of(const std::filesystem::path& path) {
  const std::string bytes = read_file(path, 1 << 20);
  std::vector<std::string> records;
  const auto number = [&](std::size_t at, auto word) {
    std::memcpy(&word, bytes.data() + at, sizeof(word));
    return word;
  };
  for (std::size_t at = 0; at < bytes.size();) {
    const auto length = number(at, std::uint64_t{});
    EXPECT_EQ(number(at + 8, std::uint32_t{}), masked_crc32c(std::string_view(bytes).substr(at, 8)));
    records.push_back(bytes.substr(at + 12, length));
    EXPECT_EQ(number(at + 12 + length, std::uint32_t{}), masked_crc32c(records.back()));
    at += 16 + length;
  }
  return records;
}

// A part of a record would make the rest of the file unreadable.
TEST(EventFile, AFullDiskLeavesWholeRecords) {
  const TemporaryFolder folder;
  EventFile file(folder / "events");
  file.write("one");
  {
    const FileSizeLimit full(30);
    EXPECT_ERROR(file.write(std::string(100, 'x')), "events: File too large");
  }
  file.write("two");
  EXPECT_EQ(records_of(file.path()), (std::vector<std::string>{"one", "two"}));
}

// The fields of a message: numbers as they are, everything else as bytes.
struct Fields {
  std::map<int, double> numbers;
  std::map<int, std::string> bytes;
};
Fields fields_of(const std::string& message) {
  Fields fields;
  pbf_reader reader(message);
  while (reader.next()) {
    const auto tag = static_cast<int>(reader.tag());
    switch (reader.wire_type()) {
      case protozero::pbf_wire_type::varint: fields.numbers[tag] = static_cast<double>(reader.get_int64()); break;
      case protozero::pbf_wire_type::fixed64: fields.numbers[tag] = reader.get_double(); break;
      case protozero::pbf_wire_type::fixed32: fields.numbers[tag] = reader.get_float(); break;
      default: fields.bytes[tag] = reader.get_bytes();
    }
  }
  return fields;
}
// Summary.Value of an event.
Fields value_of(const Fields& event) { return fields_of(fields_of(event.bytes.at(5)).bytes.at(1)); }

std::vector<double> doubles(const std::string& packed) {
  std::vector<double> all(packed.size() / sizeof(double));
  std::memcpy(all.data(), packed.data(), packed.size());
  return all;
}

TEST(TensorBoard, WritesWhatTensorBoardReads) {
  const TemporaryFolder folder;
  std::filesystem::path file;
  {
    TensorBoardWriter board(folder / "runs/1", {.purge_step = 5, .wall_time = 1.5});
    file = board.path();
    board.add_scalar("train/loss", 0.25, 7);
    board.add_scalar("train/loss", NAN, 8);
    board.add_text("recipe", "seed 0");
    board.add_histogram("w", Tensor::from<float>({-1, 0, 0.5, 0.5, 0.5}, {5}), 9);
    board.add_text("\xff", "\xe4", 9);
  }
  const std::vector<std::string> records = records_of(file);
  ASSERT_EQ(records.size(), 7U);
  EXPECT_EQ(fields_of(records[0]).bytes.at(3), "brain.Event:2");
  EXPECT_EQ(fields_of(records[0]).numbers.at(1), 1.5);
  EXPECT_EQ(fields_of(records[1]).numbers.at(2), 5);
  EXPECT_EQ(fields_of(fields_of(records[1]).bytes.at(7)).numbers.at(1), 1);
  EXPECT_EQ(fields_of(records[2]).numbers.at(2), 7);
  EXPECT_EQ(value_of(fields_of(records[2])).bytes.at(1), "train/loss");
  EXPECT_EQ(value_of(fields_of(records[2])).numbers.at(2), 0.25);
  EXPECT_TRUE(std::isnan(value_of(fields_of(records[3])).numbers.at(2)));
  const Fields text = value_of(fields_of(records[4]));
  EXPECT_EQ(fields_of(fields_of(text.bytes.at(9)).bytes.at(1)).bytes.at(1), "text");
  EXPECT_EQ(fields_of(text.bytes.at(8)).bytes.at(8), "seed 0");
  EXPECT_EQ(fields_of(text.bytes.at(8)).numbers.at(1), 7);

  // A message with text that is not UTF-8 is none.
  const Fields odd = value_of(fields_of(records[6]));
  EXPECT_EQ(odd.bytes.at(1) + fields_of(odd.bytes.at(8)).bytes.at(8), "\uFFFD\uFFFD");

  const Fields histogram = fields_of(value_of(fields_of(records[5])).bytes.at(5));
  EXPECT_EQ(histogram.numbers.at(1), -1);
  EXPECT_EQ(histogram.numbers.at(2), 0.5);
  EXPECT_EQ(histogram.numbers.at(3), 5);
  EXPECT_EQ(histogram.numbers.at(4), 0.5);
  EXPECT_EQ(histogram.numbers.at(5), 1.75);
  const std::vector<double> limits = doubles(histogram.bytes.at(6)), counts = doubles(histogram.bytes.at(7));
  ASSERT_EQ(limits.size(), counts.size());
  EXPECT_TRUE(std::ranges::is_sorted(limits));
  double total = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    total += counts[i];
    if (counts[i] == 3) {
      EXPECT_LE(limits[i - 1], 0.5);
      EXPECT_GT(limits[i], 0.5);
    }
  }
  EXPECT_EQ(total, 5);
  EXPECT_EQ(std::ranges::max(counts), 3);
}

TEST(TensorBoard, EqualRunsHaveEqualBytes) {
  const TemporaryFolder folder;
  std::string bytes[2];
  for (std::string& b : bytes) {
    TensorBoardWriter board(folder.path(), {.wall_time = 1});
    board.add_scalar("a", 1, 0);
    b = read_file(board.path(), 1 << 20);
  }
  EXPECT_EQ(bytes[0], bytes[1]);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), std::filesystem::directory_iterator()),
            2);
}

TEST(TensorBoard, SaysWhatItCannotWrite) {
  const TemporaryFolder folder;
  TensorBoardWriter board(folder.path());
  EXPECT_ERROR(board.add_scalar("", 1, 0), "an empty tag");
  EXPECT_ERROR(board.add_scalar("a", 1, -1), "a: step -1, expected 0 or more");
  EXPECT_ERROR(board.add_histogram("a", Tensor::from<float>({1, INFINITY}, {2}), 0), "a: a value is inf");
  EXPECT_ERROR(board.add_histogram("a", Tensor::host({0}, DType::f32), 0), "a: no values");
  folder.write("file", "x");
  EXPECT_ERROR(TensorBoardWriter(folder / "file/board"), "cannot create the folder");
  EXPECT_EQ(records_of(board.path()).size(), 1U);
}

// The nodes of an event's graph: the fields of each, and the names of its inputs.
std::map<std::string, std::pair<Fields, std::vector<std::string>>> graph_of(const Fields& event) {
  std::map<std::string, std::pair<Fields, std::vector<std::string>>> nodes;
  const std::string graph = event.bytes.at(4);
  pbf_reader reader(graph);
  while (reader.next(1)) {
    const std::string node = reader.get_bytes();
    std::vector<std::string> inputs;
    for (pbf_reader fields(node); fields.next();) {
      if (fields.tag() == 3) {
        inputs.push_back(fields.get_string());
      } else {
        fields.skip();
      }
    }
    const Fields fields = fields_of(node);
    nodes.emplace(fields.bytes.at(1), std::pair(fields, inputs));
  }
  return nodes;
}

TEST(TensorBoard, ShowsPictures) {
  const TemporaryFolder folder;
  TensorBoardWriter board(folder.path());
  const Tensor gray = Tensor::from<std::uint8_t>({0, 50, 100, 150, 200, 250}, {1, 2, 3});
  board.add_image("gray", gray, 3);
  board.add_image("color", Tensor::from<float>({0, 0.5, 2, -1, 1, 0.2F}, {3, 1, 2}));
  const std::vector<std::string> records = records_of(board.path());
  const Fields first = fields_of(value_of(fields_of(records.at(1))).bytes.at(4));
  EXPECT_EQ(first.numbers.at(1), 2);
  EXPECT_EQ(first.numbers.at(2), 3);
  EXPECT_EQ(first.numbers.at(3), 1);
  EXPECT_EQ(decode_image(first.bytes.at(4)).to_vector<std::uint8_t>(), gray.to_vector<std::uint8_t>());
  const Fields second = fields_of(value_of(fields_of(records.at(2))).bytes.at(4));
  EXPECT_EQ(second.numbers.at(3), 3);
  EXPECT_EQ(decode_image(second.bytes.at(4)).to_vector<std::uint8_t>(),
            (std::vector<std::uint8_t>{0, 127, 255, 0, 255, 51}));
  EXPECT_ERROR(board.add_image("a", Tensor::host({2, 3}, DType::u8)), "a: ");
  EXPECT_ERROR(board.add_image("a", Tensor::from<float>({NAN}, {1, 1, 1})), "a: a pixel is NaN");
  EXPECT_ERROR(board.add_image("a", Tensor::host({1, 2, 3}, DType::i64)), "a: a picture of i64");
}

// A net with a connection around a layer: nodes are operations in scopes of modules, edges what they take.
TEST(TensorBoard, ShowsTheGraphOfAModel) {
  struct Net : Module {
    Linear& a = make<Linear>("a", 3, 3);
    Sequential& b = make<Sequential>("b");
    Net() { b.append<Linear>(LinearOptions{.out_features = 3}); }
    Tensor forward(const Tensor& x) override {
      const Tensor y = relu(a(x));
      return y + b(y);
    }
  };
  const TemporaryFolder folder;
  Runtime runtime({.cpu_devices = 2});
  Net net;
  net.initialize(Xavier{}, runtime.devices());
  TensorBoardWriter board(folder.path());
  board.add_graph(net, Tensor::host({2, 3}, DType::f32));
  EXPECT_TRUE(net.training());
  const auto nodes = graph_of(fields_of(records_of(board.path()).at(1)));
  ASSERT_TRUE(nodes.contains("a/linear") && nodes.contains("b/0/linear") && nodes.contains("add"));
  EXPECT_EQ(nodes.at("a/linear").second, (std::vector<std::string>{"input", "a/weight", "a/bias"}));
  EXPECT_EQ(nodes.at("relu").second, std::vector<std::string>{"a/linear"});
  EXPECT_EQ(nodes.at("b/0/linear").second, (std::vector<std::string>{"relu", "b/0/weight", "b/0/bias"}));
  EXPECT_EQ(nodes.at("add").second, (std::vector<std::string>{"relu", "b/0/linear"}));
  EXPECT_EQ(nodes.at("input").first.bytes.at(2), "Input");
  for (const auto& [name, node] : nodes) {
    for (const std::string& input : node.second) EXPECT_TRUE(nodes.contains(input)) << name << ": " << input;
  }
}

// The tags of all files of a folder, with the steps at which they occur.
std::map<std::string, std::vector<int>> tags_in(const std::filesystem::path& folder) {
  std::map<std::string, std::vector<int>> tags;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    for (const std::string& record : records_of(file.path())) {
      const Fields event = fields_of(record);
      if (!event.bytes.contains(5)) continue;
      const auto step = event.numbers.find(2);  // 0 is left out
      tags[value_of(event).bytes.at(1)].push_back(step == event.numbers.end() ? 0 : static_cast<int>(step->second));
    }
  }
  return tags;
}

// Of one process and of two ranks: rank 0 writes, and the weights are those of a run without a file, whose steps are
// recorded.
TEST(TensorBoard, ShowsATrainingRun) {
  const TemporaryFolder folder;
  const auto train = [](const std::filesystem::path& to, const std::shared_ptr<ProcessGroup>& group) {
    SmallJob job(
        1, {.record_steps = true, .epochs = 2, .tensorboard = {.folder = to, .histogram_every = to.empty() ? 0 : 4}},
        nullptr, group);
    const TrainingResult result = job.trainer->train();
    return (result.failures.empty() ? "" : result.failures[0].str()) + weights_sha256(job.net);
  };
  const std::string expected = train("", nullptr);
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    const std::filesystem::path to = folder / std::to_string(ranks);
    EXPECT_EQ(run_layout({.ranks = ranks}, [&](int, const auto& group) { return train(to, group); }), expected);
    const auto tags = tags_in(to);
    EXPECT_EQ(tags.at("recipe"), std::vector<int>{0});
    EXPECT_EQ(tags.at("examples"), std::vector<int>{0});
    EXPECT_EQ(tags.at("train/loss"), (std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
    EXPECT_EQ(tags.at("epoch/test_acc"), (std::vector<int>{5, 10}));
    EXPECT_EQ(tags.at("weights/0.weight"), (std::vector<int>{4, 8}));
    EXPECT_EQ(tags.at("gradients/6.weight"), (std::vector<int>{4, 8}));
  }
  folder.write("file", "x");
  EXPECT_ERROR(train(folder / "file/board", nullptr), "cannot create the folder");
}

// A run that was killed before its first checkpoint starts anew in its folder.
TEST(TensorBoard, ANewRunHidesAnEarlierOne) {
  const TemporaryFolder folder;
  SmallJob(1, {.epochs = 1, .tensorboard = {.folder = folder.path()}}).trainer->train();
  std::vector<double> purged;
  for (const std::string& record : records_of(std::filesystem::directory_iterator(folder.path())->path())) {
    const Fields event = fields_of(record);
    if (event.bytes.contains(7)) purged.push_back(event.numbers.at(2));  // the session's start
  }
  EXPECT_EQ(purged, std::vector<double>{0});
}

// Those of f16 have no loss scale. A scale that is too large makes them infinite, and then they have no histogram.
TEST(TensorBoard, ShowsGradientsAsTheyAre) {
  const TemporaryFolder folder;
  const auto largest = [&](const std::string& name, DType dtype, double scale) {
    SmallJob job(1, {.epochs = 2,
                     .dtype = dtype,
                     .loss_scaling = {.initial_scale = scale},
                     .tensorboard = {.folder = folder / name, .histogram_every = 1}});
    EXPECT_TRUE(job.trainer->train().failures.empty());
    for (const auto& file : std::filesystem::directory_iterator(folder / name)) {
      for (const std::string& record : records_of(file.path())) {
        const Fields event = fields_of(record);
        if (!event.bytes.contains(5) || value_of(event).bytes.at(1) != "gradients/6.weight") continue;
        return fields_of(value_of(event).bytes.at(5)).numbers.at(2);
      }
    }
    return 0.0;
  };
  const double expected = largest("f32", DType::f32, LossScalerOptions().initial_scale);
  EXPECT_GT(expected, 0);
  EXPECT_NEAR(largest("f16", DType::f16, 1024), expected, 0.02 * expected);
  EXPECT_GT(largest("large", DType::f16, 0x1p24), 0);
  const auto tags = tags_in(folder / "large");
  const std::vector<int>&bad = tags.at("not_finite/gradients/6.weight"), &good = tags.at("gradients/6.weight");
  EXPECT_EQ(bad.front(), 1);
  EXPECT_EQ(bad.size() + good.size(), 10U);
  EXPECT_EQ(tags.at("weights/6.weight").size(), 10U);
}

}  // namespace
}  // namespace lockstep::testing
