#include "lockstep/checkpoint/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/base/sha256.h"
#include "lockstep/checkpoint/training_checkpoint.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/nn/state_dict.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

struct Net : Sequential {
  explicit Net(const Runtime& runtime, std::uint64_t seed = 0, std::int64_t outputs = 3) {
    append<BatchNorm2d>(BatchNorm2dOptions{.channels = 2});
    append<Linear>(LinearOptions{.in_features = 4, .out_features = outputs});
    initialize(Normal{1}, runtime.devices(), {.seed = seed});
  }
};

TEST(Weights, TravelThroughAFileToAllReplicas) {
  Runtime runtime({.cpu_devices = 3});
  TemporaryFolder folder;
  Net a(runtime, 1), b(runtime, 2);
  ASSERT_NE(weights_sha256(a), weights_sha256(b));
  save_weights(folder / "net", a);
  load_weights(folder / "net", b);
  EXPECT_EQ(weights_sha256(a), weights_sha256(b));
  const auto from = a.named_parameters(), to = b.named_parameters();
  for (std::size_t i = 0; i < from.size(); ++i) {
    for (const Device device : runtime.devices()) {
      EXPECT_EQ(to[i].second.data(device).to_vector<float>(), from[i].second.host_data().to_vector<float>());
    }
  }
}

TEST(Weights, HavePyTorchsNamesAndMetadata) {
  Runtime runtime;
  TemporaryFolder folder;
  save_weights(folder / "net", Net(runtime));
  const SafetensorsFile file = read_safetensors(folder / "net");
  EXPECT_EQ(file.metadata, (SafetensorsMetadata{{"format", "pt"}}));
  std::vector<std::string> names;
  for (const TensorBytes& tensor : file.tensors) names.push_back(tensor.name);
  std::ranges::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{"0.bias", "0.num_batches_tracked", "0.running_mean", "0.running_var",
                                             "0.weight", "1.bias", "1.weight"}));
  EXPECT_EQ(file.find("0.num_batches_tracked")->dtype, DType::i64);
  EXPECT_EQ(file.find("1.weight")->shape, (Shape{3, 4}));
}

TEST(Weights, HashIsOverFloatingPointTensorsSortedByName) {
  Runtime runtime;
  TemporaryFolder folder;
  Net net(runtime);
  save_weights(folder / "net", net);
  const SafetensorsFile file = read_safetensors(folder / "net");
  Sha256 hash;
  for (const char* name : {"0.bias", "0.running_mean", "0.running_var", "0.weight", "1.bias", "1.weight"}) {
    hash.update(file.find(name)->bytes);
  }
  EXPECT_EQ(weights_sha256(net), hash.hex());
}

TEST(Weights, HashTellsASingleBit) {
  Runtime runtime;
  Net net(runtime);
  const std::string before = weights_sha256(net);
  Parameter bias = net.named_parameters().back().second;
  std::vector<float> values = bias.host_data().to_vector<float>();
  values[0] = -values[0];  // from 0 to -0: equal, but not the same bits
  ASSERT_EQ(values[0], 0);
  bias.set_data(Tensor::from(values, bias.shape()));
  EXPECT_NE(weights_sha256(net), before);
}

TEST(Weights, ThatDoNotFitNameTheFileAndChangeNothing) {
  Runtime runtime;
  TemporaryFolder folder;
  save_weights(folder / "wide", Net(runtime, 1, 5));
  Net net(runtime);
  const std::string before = weights_sha256(net);
  EXPECT_ERROR(load_weights(folder / "wide", net), (folder / "wide").string());
  EXPECT_ERROR(load_weights(folder / "wide", net), "1.weight");
  EXPECT_EQ(weights_sha256(net), before);
  Linear other({.in_features = 4, .out_features = 3});
  other.initialize(Normal{1}, runtime.devices());
  EXPECT_ERROR(load_weights(folder / "wide", other), "weight");
  EXPECT_ERROR(load_weights(folder / "none", net), (folder / "none").string());
}

template <typename T>
Tensor with_value(double value) {
  Tensor t = Tensor::host({70}, dtype_of<T>);
  for (int i = 0; i < 70; ++i) t.data_ptr<T>()[i] = T(-1.5f);
  if constexpr (is_half<T>) {
    t.data_ptr<T>()[66] = T(static_cast<float>(value));
  } else {
    t.data_ptr<T>()[66] = static_cast<T>(value);
  }
  return t;
}

TEST(Weights, OfEveryTypeAreCheckedToBeFinite) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto check = [](Tensor t) {
    check_finite({{"fc.bias", Tensor::host({0})}, {"fc.weight", std::move(t)}}, "here");
  };
  const auto check_type = [&](auto type, double most) {
    using T = decltype(type);
    for (const double good : {0.0, -0.0, most, -most, most * 0x1p-30}) EXPECT_NO_THROW(check(with_value<T>(good)));
    EXPECT_ERROR(check(with_value<T>(inf)), "here: fc.weight holds inf at element 66");
    EXPECT_ERROR(check(with_value<T>(-inf)), "here: fc.weight holds -inf at element 66");
    EXPECT_ERROR(check(with_value<T>(-std::nan(""))), "here: fc.weight holds nan at element 66");
  };
  check_type(float{}, std::numeric_limits<float>::max());
  check_type(double{}, std::numeric_limits<double>::max());
  check_type(BFloat16{}, 3.38e38);
  check_type(Float16{}, 65504);
  EXPECT_NO_THROW(check(Tensor::from(std::vector<std::int64_t>{-1, 0x7ff0000000000000}, {2})));
}

TEST(Weights, ThatAreNotFiniteAreNotWritten) {
  Runtime runtime({.cpu_devices = 2});
  TemporaryFolder folder;
  Net net(runtime);
  save_weights(folder / "net", net);
  const std::string before = folder.read("net");
  Parameter variance = net.named_buffers()[1].second;
  variance.set_data(Tensor::from(std::vector<float>{1, std::numeric_limits<float>::infinity()}, {2}));
  EXPECT_ERROR(save_weights(folder / "net", net), (folder / "net").string() + ": 0.running_var holds inf at element 1");
  EXPECT_EQ(folder.read("net"), before);
}

// A mask of a causal attention does. Training does not compute it.
TEST(Weights, ABufferMayHoldInfinities) {
  const float inf = std::numeric_limits<float>::infinity();
  struct Masked : Linear {
    Masked() : Linear({.in_features = 3, .out_features = 2}) {}
    Parameter mask = add_buffer("mask", {.shape = {3}});
  };
  Runtime runtime;
  TemporaryFolder folder;
  Masked net;
  net.initialize(Normal{1}, runtime.devices());
  net.mask.set_data(Tensor::from(std::vector<float>{0, -inf, inf}, {3}));
  save_weights(folder / "net", net);
  Masked other;
  other.initialize(Normal{1}, runtime.devices(), {.seed = 1});
  load_weights(folder / "net", other);
  EXPECT_EQ(other.mask.host_data().to_vector<float>(), (std::vector<float>{0, -inf, inf}));
  // The error names the NaN, not the infinity before it.
  net.mask.set_data(Tensor::from(std::vector<float>{0, -inf, NAN}, {3}));
  EXPECT_ERROR(save_weights(folder / "net", net), "mask holds nan at element 2");
}

// A file as PyTorch writes it: half floats, a mask, an index of 32 bits, and a type that no tensor has.
TEST(Weights, OfOtherTypesAreLoadedOrListed) {
  Runtime runtime;
  TemporaryFolder folder;
  Linear net({.in_features = 1, .out_features = 2, .bias = false});
  net.initialize(Normal{1}, runtime.devices());
  const auto write = [&](std::string header, std::string_view data) {
    const std::uint64_t size = header.size();
    std::string bytes(reinterpret_cast<const char*>(&size), 8);
    return folder.write("f", bytes + header + std::string(data));
  };
  const std::string weight = R"("weight": {"dtype": "BF16", "shape": [2, 1], "data_offsets": [0, 4]})";
  const std::string_view data(
      "\x80\x3f\0\xc0"
      "01234567",
      12);  // 1 and -2
  load_weights(write("{" + weight + "}", data.substr(0, 4)), net);
  EXPECT_EQ(net.weight.host_data().to_vector<float>(), (std::vector<float>{1, -2}));
  const std::string others = R"(, "mask": {"dtype": "BOOL", "shape": [2], "data_offsets": [4, 6]},
                                  "scale": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [6, 8]},
                                  "index": {"dtype": "I32", "shape": [], "data_offsets": [8, 12]}})";
  const std::filesystem::path mixed = write("{" + weight + others, data);
  EXPECT_ERROR(load_weights(mixed, net), "f: scale is not in the model");
  const UnmatchedEntries unmatched = load_matching_weights(mixed, net);
  EXPECT_EQ(unmatched.unexpected, (std::vector<std::string>{"index", "mask", "scale"}));
  EXPECT_TRUE(unmatched.missing.empty());
  const std::filesystem::path f8 = write(R"({"weight": {"dtype": "F8_E4M3", "shape": [2, 1], "data_offsets": [0, 2]},
                "bias": {"dtype": "F32", "shape": [2], "data_offsets": [2, 10]}})",
                                         "0123456789");
  EXPECT_ERROR(load_weights(f8, net), "f: weight is F8_E4M3 [2, 1], expected [2, 1] f32");
  Linear biased({.in_features = 1, .out_features = 2});
  biased.initialize(Normal{1}, runtime.devices());
  EXPECT_EQ(load_matching_weights(f8, biased).different,
            std::vector<std::string>{"weight F8_E4M3 [2, 1], expected [2, 1] f32"});
}

// As libraries of large models write them.
TEST(Weights, OfSeveralFilesWithAnIndex) {
  Runtime runtime;
  TemporaryFolder folder;
  Net net(runtime, 1), other(runtime, 2);
  StateDict state = state_dict(net);
  ASSERT_GE(state.size(), 3u);
  const auto write = [&](const char* file, std::size_t from, std::size_t to) {
    const auto tensors =
        as_bytes({state.begin() + static_cast<std::ptrdiff_t>(from), state.begin() + static_cast<std::ptrdiff_t>(to)});
    write_safetensors(folder / file, tensors, {{"format", "pt"}});
  };
  write("model-00001-of-00002.safetensors", 0, 1);
  write("model-00002-of-00002.safetensors", 1, state.size());
  const auto index = [&](std::string_view first_file) {
    std::string map;
    for (std::size_t i = 0; i < state.size(); ++i) {
      map += fmt::format("{}\"{}\": \"{}\"", i == 0 ? "" : ", ", state[i].first,
                         i == 0 ? first_file : "model-00002-of-00002.safetensors");
    }
    return folder.write("model.safetensors.index.json",
                        "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {" + map + "}}");
  };
  const std::filesystem::path path = index("model-00001-of-00002.safetensors");
  load_weights(path, other);
  EXPECT_EQ(weights_sha256(other), weights_sha256(net));
  Net third(runtime, 3);
  load_weights(folder.path(), third);
  EXPECT_EQ(weights_sha256(third), weights_sha256(net));

  index("../elsewhere.safetensors");
  EXPECT_ERROR(load_weights(path, other),
               "is in \"../elsewhere.safetensors\", expected the name of a file in the same");
  index("model-00003-of-00003.safetensors");
  EXPECT_ERROR(load_weights(path, other), "model-00003-of-00003.safetensors");
  index("model-00002-of-00002.safetensors");
  EXPECT_ERROR(load_weights(path, other), "is missing, which model.safetensors.index.json lists there");
  index("model-00001-of-00002.safetensors");
  write("model-00001-of-00002.safetensors", 0, 2);
  EXPECT_ERROR(load_weights(path, other), "which model.safetensors.index.json does not list there");
  folder.write("model.safetensors.index.json", "{\"weight_map\": [");
  EXPECT_ERROR(load_weights(path, other), "not valid JSON");
  folder.write("model.safetensors.index.json", "{\"weight_map\": {}}");
  EXPECT_ERROR(load_weights(path, other), "weight_map is empty");
  EXPECT_EQ(weights_sha256(other), weights_sha256(net));
}

TEST(Weights, OfACheckpointOrAFolderOfThem) {
  Runtime runtime;
  TemporaryFolder folder;
  Net net(runtime, 1), other(runtime, 2);
  Sgd sgd(net.parameters(), {});
  EXPECT_ERROR(load_weights(folder.path(), other),
               "there is no checkpoint in this folder, expected a safetensors file");
  save_checkpoint(folder.path(), net, sgd, {.step = 1}, {});
  const std::string first = weights_sha256(net);
  net.parameters().back().set_data(Tensor::from(std::vector<float>{1, 2, 3}, {3}));
  save_checkpoint(folder.path(), net, sgd, {.step = 2}, {});
  load_weights(folder.path(), other);
  EXPECT_EQ(weights_sha256(other), weights_sha256(net));
  load_weights(folder / "step-00000001", other);
  EXPECT_EQ(weights_sha256(other), first);
  EXPECT_TRUE(load_matching_weights(folder.path(), other).missing.empty());
  EXPECT_EQ(weights_sha256(other), weights_sha256(net));
  // The average is what tests measure.
  StateDict average{{"1.bias", Tensor::from(std::vector<float>{4, 5, 6}, {3})}};
  save_checkpoint(folder / "averaged", net, sgd, {.step = 1}, {}, {.average = average});
  load_weights(folder / "averaged", other);
  EXPECT_EQ(other.parameters().back().host_data().to_vector<float>(), (std::vector<float>{4, 5, 6}));
  folder.write("averaged/step-00000001/weights.safetensors", "rust");
  EXPECT_ERROR(load_weights(folder / "averaged", other), "there is no valid checkpoint");
}

// The average has the first name alone of a parameter that layers share.
TEST(Weights, OfAnAverageHaveAllNamesOfAParameter) {
  Runtime runtime;
  TemporaryFolder folder;
  Sequential net;
  auto shared = std::make_shared<Linear>(LinearOptions{.in_features = 2, .out_features = 2, .bias = false});
  net.append(shared).append(shared);
  net.initialize(Normal{1}, runtime.devices());
  Sgd sgd(net.parameters(), {});
  const std::vector<float> expected{1, 2, 3, 4};
  StateDict average{{"0.weight", Tensor::from(expected, {2, 2})}};
  save_checkpoint(folder.path(), net, sgd, {.step = 1}, {}, {.average = average});
  load_weights(folder.path(), net);
  EXPECT_EQ(shared->weight.host_data().to_vector<float>(), expected);
  shared->weight.set_data(Tensor::from(std::vector<float>(4), {2, 2}));
  EXPECT_TRUE(load_matching_weights(folder.path(), net).missing.empty());
  EXPECT_EQ(shared->weight.host_data().to_vector<float>(), expected);
}

}  // namespace
}  // namespace lockstep
