#include "lockstep/checkpoint/weights.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/expect_error.h"
#include "tests/process_limits.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

template <typename T>
TensorBytes tensor(std::string name, Shape shape, const std::vector<T>& values) {
  return {std::move(name), dtype_of<T>, shape, std::as_bytes(std::span(values))};
}

std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A file with this header and data, by the words of the format's description.
std::string file_of(std::string_view header, std::string_view data) {
  std::uint64_t size = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &size, 8);
  return bytes.append(header).append(data);
}

std::string written(std::span<const TensorBytes> tensors, const SafetensorsMetadata& metadata = {}) {
  std::string bytes;
  write_safetensors([&](std::span<const std::byte> piece) { bytes += text(piece); }, tensors, metadata);
  return bytes;
}

TEST(Safetensors, WritesTheFormatToTheByte) {
  const std::vector<std::uint8_t> values{1, 2, 3};
  const std::vector<TensorBytes> tensors{tensor<std::uint8_t>("a", {3}, values)};
  const std::string header = R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})";
  ASSERT_EQ(header.size() % 8, 5u);
  EXPECT_EQ(written(tensors), file_of(header + "   ", "\1\2\3"));
}

TEST(Safetensors, ReadsWhatTheDescriptionAllows) {
  // White space, any order of keys and tensors, and no padding.
  const SafetensorsFile file =
      parse_safetensors(file_of(R"({ "late": {"shape": [2], "data_offsets": [4, 6], "dtype": "U8"},
                   "early": {"data_offsets": [0, 4], "dtype": "F32", "shape": []},
                   "__metadata__": {"format": "pt"}} )",
                                std::string("\0\0\x80\x3f", 4) + "xy"),
                        "memory");
  ASSERT_EQ(file.tensors.size(), 2u);
  EXPECT_EQ(file.tensors[0].name, "early");
  EXPECT_EQ(file.tensors[0].shape, Shape{});
  float one = 0;
  std::memcpy(&one, file.tensors[0].bytes.data(), 4);
  EXPECT_EQ(one, 1.0f);
  EXPECT_EQ(text(file.find("late")->bytes), "xy");
  EXPECT_EQ(file.find("missing"), nullptr);
  EXPECT_EQ(file.metadata, (SafetensorsMetadata{{"format", "pt"}}));
}

TEST(Safetensors, ReturnsEveryTypeAndShape) {
  TemporaryFolder folder;
  const std::vector<float> f32{1.5f, -0.0f, std::numeric_limits<float>::quiet_NaN(), 1e-45f, 5, 6};
  const std::vector<BFloat16> bf16{BFloat16(1.0f), BFloat16(-3.5f)};
  const std::vector<Float16> f16{Float16(0.1f), Float16(-65504.0f), Float16(1e-7f)};
  const std::vector<double> f64{0.1};
  const std::vector<std::int64_t> batches{std::numeric_limits<std::int64_t>::min()};
  const std::vector<std::uint8_t> u8{255, 0, 7};
  const std::vector<TensorBytes> tensors{
      tensor<std::uint8_t>("u8", {3}, u8),    tensor<float>("f32", {1, 2, 1, 3, 1, 1}, f32),
      tensor<BFloat16>("bf16", {2, 1}, bf16), tensor<Float16>("f16", {3}, f16),
      tensor<double>("f64", {1}, f64),        tensor<std::int64_t>("1.num_batches_tracked", {}, batches),
      tensor<float>("empty", {4, 0, 2}, {}),  tensor<float>("größe \"\n\\", {0}, {})};
  const SafetensorsMetadata metadata{{"format", "pt"}, {"note", "ein Häkchen ✓\n"}};
  write_safetensors(folder / "weights.safetensors", tensors, metadata);
  EXPECT_EQ(folder.entries(), 1);

  const SafetensorsFile file = read_safetensors(folder / "weights.safetensors");
  EXPECT_EQ(file.metadata, metadata);
  ASSERT_EQ(file.tensors.size(), tensors.size());
  for (const TensorBytes& expected : tensors) {
    const TensorBytes* found = file.find(expected.name);
    ASSERT_NE(found, nullptr) << expected.name;
    EXPECT_EQ(found->dtype, expected.dtype);
    EXPECT_EQ(found->shape, expected.shape);
    EXPECT_EQ(text(found->bytes), text(expected.bytes)) << expected.name;
  }
}

// An entry that no tensor can hold does not make the others unreadable.
TEST(Safetensors, OtherTypesAreKeptApart) {
  const SafetensorsFile file =
      parse_safetensors(file_of(R"({"bool": {"dtype": "BOOL", "shape": [2], "data_offsets": [0, 2]},
                  "i32": {"dtype": "I32", "shape": [2], "data_offsets": [4, 12]},
                  "f8": {"dtype": "F8_E4M3", "shape": [1, 2], "data_offsets": [2, 4]},
                  "u16": {"dtype": "U16", "shape": [], "data_offsets": [12, 14]},
                  "deep": {"dtype": "U8", "shape": [1, 1, 1, 1, 1, 1, 1], "data_offsets": [14, 15]},
                  "f4": {"dtype": "F4\n", "shape": [2], "data_offsets": [15, 16]},
                  "u8": {"dtype": "U8", "shape": [1], "data_offsets": [16, 17]}})",
                                std::string("\1\0ab\xff\xff\xff\xff\0\0\1\0\xff\xff"
                                            "dfu",
                                            17)),
                        "memory");
  ASSERT_EQ(file.tensors.size(), 2U);
  EXPECT_EQ(file.find("u8")->dtype, DType::u8);
  EXPECT_EQ(file.find("bool")->dtype, DType::boolean);
  EXPECT_EQ(file.find("i32"), nullptr);
  std::vector<std::string> foreign;
  for (const ForeignTensor& t : file.foreign) foreign.push_back(t.name + " " + t.describe());
  EXPECT_EQ(foreign, (std::vector<std::string>{"f8 F8_E4M3 [1, 2]", "i32 I32 [2]", "u16 U16 []",
                                               "deep U8 [1, 1, 1, 1, 1, 1, 1]", R"(f4 "F4\n" [2])"}));
  // Integers have a type that holds them all.
  const StateDict state = as_tensors(file);
  ASSERT_EQ(state.size(), 4U);
  EXPECT_EQ(state[0].second.to_vector<bool>(), (std::vector<bool>{true, false}));
  EXPECT_EQ(state[1].second.to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{'u'}));
  EXPECT_EQ(state[2].second.to_vector<std::int64_t>(), (std::vector<std::int64_t>{-1, 0x10000}));
  EXPECT_EQ(state[3].second.to_vector<std::int64_t>(), (std::vector<std::int64_t>{0xffff}));
}

// What users of PyTorch have first is a .pth file.
TEST(Safetensors, AFileOfTorchSaveSaysHowToConvertIt) {
  const std::string zip("PK\3\4\0\0\x08\x08\0\0\0\0\0\0\0\0resnet18/data.pkl", 33),
      pickle("\x80\2\x8a\nl\xfc\x9c\x46\xf9 j", 12);
  for (const std::string& bytes : {zip, pickle}) {
    EXPECT_ERROR(parse_safetensors(bytes, "models/resnet18.pth"),
                 "models/resnet18.pth: this is a file of torch.save(), which only Python can read: convert it with "
                 "python3 -c 'import sys, torch, safetensors.torch as s; s.save_file(torch.load(sys.argv[1], \"cpu\", "
                 "weights_only=True), sys.argv[2])' resnet18.pth resnet18.safetensors, or from a program that has the "
                 "model with safetensors.torch.save_file(net.state_dict(), ...)");
    EXPECT_ERROR(parse_safetensors(bytes, "a'; rm *.pth"),
                 "sys.argv[2])' 'a'\\''; rm *.pth' 'a'\\''; rm *.safetensors'");
  }
  // 0x80 also begins a header of 128 bytes, and 0x280 one of 640.
  for (const std::size_t size : {0x80U, 0x280U}) {
    std::string header = R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})";
    header.resize(size, ' ');
    EXPECT_EQ(parse_safetensors(file_of(header, "x"), "f").tensors.size(), 1U);
  }
}

TEST(Safetensors, AnUnreadableFileOfPyTorchsNameSaysHowToConvertIt) {
  for (const std::string& bytes : {std::string(), std::string("PK\3"), std::string("torch checkpoint"),
                                   file_of("[]", ""), std::string("\x60\0\0\0\0\0\0\0{", 9)}) {
    for (const char* name : {"a.pt", "a.pth", "a.bin", "a.ckpt"}) {
      EXPECT_ERROR(parse_safetensors(bytes, name),
                   "; if it is a file of torch.save(), convert it with python3 -c 'import sys, torch, ");
      EXPECT_ERROR(parse_safetensors(bytes, name), fmt::format("sys.argv[2])' {} a.safetensors, or", name));
    }
    try {
      parse_safetensors(bytes, "a.safetensors");
      ADD_FAILURE() << "expected an error";
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find("torch"), std::string::npos) << error.what();
    }
  }
}

TEST(Safetensors, AlignsEachTensorToItsElement) {
  const std::vector<std::uint8_t> u8(3);
  const std::vector<BFloat16> bf16(1);
  const std::vector<float> f32(1);
  const std::vector<std::int64_t> i64(1);
  const std::string bytes = written(std::vector<TensorBytes>{
      tensor<std::uint8_t>("a", {3}, u8), tensor<BFloat16>("b", {1}, bf16), tensor<float>("c", {1}, f32),
      tensor<std::int64_t>("d", {1}, i64), tensor<float>("e", {1}, f32)});
  const SafetensorsFile file = parse_safetensors(bytes, "memory");
  std::string order;
  for (const TensorBytes& tensor : file.tensors) {
    order += tensor.name;
    const auto offset = reinterpret_cast<const char*>(tensor.bytes.data()) - file.contents->data();
    EXPECT_EQ(static_cast<std::size_t>(offset) % item_size(tensor.dtype), 0u) << tensor.name;
  }
  EXPECT_EQ(order, "dceba");
}

TEST(Safetensors, HasNothingToSayOfNoTensors) {
  const SafetensorsFile file = parse_safetensors(written({}), "memory");
  EXPECT_TRUE(file.tensors.empty());
  EXPECT_TRUE(file.metadata.empty());
}

TEST(Safetensors, BytesOutliveMovesAndCopies) {
  const std::vector<std::uint8_t> values{1, 2, 3};
  SafetensorsFile copy;
  {
    SafetensorsFile file =
        parse_safetensors(written(std::vector<TensorBytes>{tensor<std::uint8_t>("a", {3}, values)}), "memory");
    SafetensorsFile moved = std::move(file);
    copy = moved;
  }
  EXPECT_EQ(text(copy.find("a")->bytes), "\1\2\3");
}

TEST(Safetensors, RefusesToWriteWhatNobodyCouldRead) {
  const std::vector<float> values(4);
  using Tensors = std::vector<TensorBytes>;
  EXPECT_ERROR(written(Tensors{tensor<float>("w", {2, 3}, values)}),
               R"(write_safetensors: tensor "w" has 16 bytes, shape [2, 3] of f32 takes 24)");
  EXPECT_ERROR(written(Tensors{tensor<float>("w", {-4}, values)}), "shape [-4] of f32 takes more than");
  EXPECT_ERROR(written(Tensors{tensor<float>("w", {4}, values), tensor<float>("w", {2, 2}, values)}),
               R"(two tensors have the name "w")");
  EXPECT_ERROR(written(Tensors{tensor<float>("__metadata__", {4}, values)}), "no tensor can have the name");
  EXPECT_ERROR(written(Tensors{tensor<float>("w\xff", {4}, values)}), "not valid UTF-8");
  EXPECT_ERROR(written({}, {{"k", "\xc3"}}), "not valid UTF-8");
}

TEST(Safetensors, AFailedWriteLeavesTheOlderFile) {
  TemporaryFolder folder;
  folder.write("w.safetensors", "older");
  const std::vector<TensorBytes> wrong{{"w", DType::f32, Shape{1}, {}}};
  EXPECT_ERROR(write_safetensors(folder / "w.safetensors", wrong), "has 0 bytes");
  EXPECT_EQ(folder.read("w.safetensors"), "older");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(Safetensors, NamesTheFileThatCannotBeRead) {
  TemporaryFolder folder;
  EXPECT_ERROR(read_safetensors(folder / "none"), (folder / "none").string() + ": No such file");
  EXPECT_ERROR(read_safetensors(folder.path()), "is a directory");
  EXPECT_ERROR(read_safetensors("/dev/zero"), "not a regular file");
  EXPECT_ERROR(read_safetensors(folder.write("short", "abc")), "short: 3 bytes are too few");
}

TEST(Safetensors, RefusesALyingHeaderLength) {
  EXPECT_ERROR(
      parse_safetensors(std::string(8, '\xff'), "f"),
      "f: not a safetensors file: its header would have 18446744073709551615 bytes, at most 100000000 are allowed");
  EXPECT_ERROR(parse_safetensors(file_of("{}", "").substr(0, 9), "f"), "f: header has 2 bytes, only 1 are in the file");
}

struct BadHeader {
  const char* header;
  std::size_t data;
  const char* error;
};

TEST(Safetensors, SaysWhatIsWrongWithAHeader) {
  const std::vector<BadHeader> cases{
      {"", 0, "f: header is not a JSON object"},
      {"[]", 0, "f: header is not a JSON object"},
      {" {}", 0, "f: header is not a JSON object"},
      {R"({"a": )", 0, "f: header is not valid JSON at its byte 7 of 6"},
      {R"({}{})", 0, "f: header is not valid JSON at its byte 3 of 4"},
      {"{\"a\xff\": 1}", 0, "f: header is not valid JSON at its byte 4"},
      {R"({"a": 1e999})", 0, "f: header is not valid JSON"},
      {R"({"a": {"shape": [[1]]}})", 0, "f: header is nested more than 3 deep"},
      {R"({"a": 1})", 0, R"(f: tensor "a": found 1, expected an object)"},
      {R"({"a": {}})", 0, R"(f: tensor "a": no dtype in {})"},
      {R"({"a": {"dtype": "U8", "shape": []}})", 0, R"(f: tensor "a": no data_offsets in )"},
      {R"({"a": {"dtype": "U8", "data_offsets": [0, 1]}})", 1, R"(f: tensor "a": no shape in )"},
      {R"({"a": {"dtype": "F8_E4M3", "shape": [3], "data_offsets": [0, 2]}})", 2,
       R"(f: tensor "a": data_offsets [0,2] hold 2 bytes, shape [3] of F8_E4M3 takes 3)"},
      {R"({"a": {"dtype": "F4", "shape": [3], "data_offsets": [0, 3]}})", 2,
       R"(f: tensor "a": data_offsets is [0,3], expected a range within 2 bytes of data)"},
      {R"({"a": {"dtype": 8, "shape": [1], "data_offsets": [0, 1]}})", 1, R"(f: tensor "a": dtype is 8)"},
      {R"({"a": {"dtype": "U8", "shape": [-1], "data_offsets": [0, 1]}})", 1,
       R"(f: tensor "a": shape is [-1], expected a list of non-negative integers)"},
      {R"({"a": {"dtype": "U8", "shape": [1.0], "data_offsets": [0, 1]}})", 1, "shape is [1.0], expected"},
      {R"({"a": {"dtype": "U8", "shape": [9223372036854775808], "data_offsets": [0, 1]}})", 1,
       "shape is [9223372036854775808], expected"},
      {R"({"a": {"dtype": "U8", "shape": [99999999999999999999], "data_offsets": [0, 1]}})", 1, "shape is [1e"},
      {R"({"a": {"dtype": "U8", "shape": 1, "data_offsets": [0, 1]}})", 1, "shape is 1, expected"},
      {R"({"a": {"dtype": "F32", "shape": [4611686018427387904, 4], "data_offsets": [0, 0]}})", 0,
       R"(f: tensor "a": shape [4611686018427387904,4] of F32 has more bytes than can be counted)"},
      {R"({"a": {"dtype": "U8", "shape": [4611686018427387904, 4, 0], "data_offsets": [0, 0]}})", 0,
       "more bytes than can be counted"},
      {R"({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}})", 8,
       R"(f: tensor "a": data_offsets [0,8] hold 8 bytes, shape [3] of F32 takes 12)"},
      {R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [4, 8]}})", 7,
       R"(f: tensor "a": data_offsets is [4,8], expected a range within 7 bytes of data)"},
      {R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [4, 0]}})", 7, "expected a range within 7 bytes"},
      {R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0]}})", 7, "expected [begin, end]"},
      {R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [-1, 0]}})", 1, "expected [begin, end]"},
      {R"({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
           "b": {"dtype": "U8", "shape": [2], "data_offsets": [1, 3]}})",
       3, R"(f: tensor "b" overlaps tensor "a" by 1 bytes)"},
      {R"({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
           "b": {"dtype": "U8", "shape": [0], "data_offsets": [1, 1]}})",
       2, R"(f: tensor "b" overlaps tensor "a" by 1 bytes)"},
      {R"({"a": {"dtype": "U8", "shape": [2], "data_offsets": [1, 3]}})", 3,
       R"(f: 1 bytes between the start of the data and tensor "a" belong to no tensor)"},
      {R"({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}})", 5,
       R"(f: 3 bytes after tensor "a" belong to no tensor)"},
      {"{}", 1, "f: 1 bytes after the start of the data belong to no tensor"},
      {R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
           "a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}})",
       2, R"(f: header has "a" more than once)"},
      {R"({"a": {"dtype": "U8", "dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})", 1,
       R"(f: header has "dtype" more than once)"},
      {R"({"__metadata__": []})", 0, "f: __metadata__ is [], expected an object of strings"},
      {R"({"__metadata__": {"epoch": 3}})", 0, R"(f: __metadata__ has 3 for "epoch", expected a string)"},
  };
  for (const BadHeader& bad : cases) {
    SCOPED_TRACE(bad.header);
    EXPECT_ERROR(parse_safetensors(file_of(bad.header, std::string(bad.data, 'x')), "f"), bad.error);
  }
  EXPECT_ERROR(parse_safetensors(file_of(std::string_view("{}\0{", 4), ""), "f"), "not a JSON object");
  EXPECT_ERROR(parse_safetensors(file_of(R"({"a":)" + std::string(1000000, '['), ""), "f"), "nested");
}

std::string joined(std::string_view part, std::size_t times) {
  std::string text;
  for (std::size_t i = 0; i < times; ++i) text += part;
  return text;
}

TEST(Safetensors, AHeaderTakesMemoryInProportion) {
  const std::string axes =
      file_of(R"({"a":{"dtype":"U8","shape":[)" + joined("1,", 8'000'000) + R"(1],"data_offsets":[0,1]}})", "x");
  std::string entries = R"({"__metadata__":{)", tensors = "{";
  for (int i = 0; i < 1'000'000; ++i) entries += fmt::format("{}\"{}\":\"\"", i == 0 ? "" : ",", i);
  for (int i = 0; i < 100'000; ++i) {
    tensors += fmt::format(R"({}"t{}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", i == 0 ? "" : ",", i);
  }
  const std::string metadata = file_of(entries + "}}", ""), many = file_of(tensors + "}", "");
  const MemoryLimit limit(rlim_t{100} << 20);
  EXPECT_ERROR(parse_safetensors(axes, "f"), "f: header has a list of more than 1024 elements");
  EXPECT_ERROR(parse_safetensors(metadata, "f"), "f: header has an object of more than 65536 names");
  // A large mixture of experts.
  EXPECT_EQ(parse_safetensors(many, "f").tensors.size(), 100'000U);
}

TEST(Safetensors, ErrorsStayOnOneShortLine) {
  const std::string name = "line\\n" + std::string(5000, 'x');
  try {
    parse_safetensors(file_of("{\"" + name + "\": 1}", ""), "f");
    FAIL() << "read a tensor that is a number";
  } catch (const Error& error) {
    EXPECT_LT(std::string(error.what()).size(), 200u);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep
