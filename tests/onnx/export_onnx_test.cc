#include "lockstep/onnx/export_onnx.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <protozero/pbf_reader.hpp>

#include "lockstep/autograd/function.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/base/file.h"
#include "lockstep/models/lenet.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/identity.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/recurrent.h"
#include "lockstep/nn/state_dict.h"
#include "lockstep/runtime/runtime.h"
#include "lockstep/tensor/view.h"
#include "tests/expect_error.h"
#include "tests/onnx/model_cases.h"
#include "tests/temporary_folder.h"

namespace lockstep::testing {
namespace {

void write_npy(const std::filesystem::path& path, const Tensor& x) {
  const Tensor host = x.to_host().to(Layout::plain);
  std::string shape;
  for (const std::int64_t extent : host.shape()) shape += fmt::format("{},", extent);
  const char* type = host.dtype() == DType::f32 ? "<f4" : host.dtype() == DType::i64 ? "<i8" : "|u1";
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", type, shape);
  header.append(64 - (header.size() + 11) % 64, ' ');
  header += '\n';
  host.wait();
  std::ofstream file(path, std::ios::binary);
  const auto size = static_cast<std::uint16_t>(header.size());
  file << std::string("\x93NUMPY\x01\x00", 8) << static_cast<char>(size & 255) << static_cast<char>(size >> 8)
       << header;
  file.write(static_cast<const char*>(host->view().data), static_cast<std::streamsize>(host->view().bytes()));
}

// The same rows again and again.
Tensor rows(const Tensor& x, int axis, std::int64_t count) {
  std::vector<std::int64_t> from;
  for (std::int64_t i = 0; i < count; ++i) from.push_back(i % x.size(axis));
  const Tensor y = index_select(x, axis, Tensor::from(from, {count}));
  return is_floating(y.dtype()) ? y * 0.9 : y;
}

// The files of all cases. LOCKSTEP_ONNX_FILES names a folder that keeps them, to look at them.
class Files {
 public:
  Files() : kept_(std::getenv("LOCKSTEP_ONNX_FILES")) {
    for (const OnnxCase& c : onnx_cases(std::getenv("LOCKSTEP_ONNX_LARGE") != nullptr)) {
      SCOPED_TRACE(c.name);
      try {
        export_onnx(folder() / (c.name + ".onnx"), *c.model, c.examples, c.forward, c.options);
        write_examples(c);
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }
  std::filesystem::path folder() const { return kept_ ? std::filesystem::path(kept_) : temporary_.path(); }
  void check(const char* how) const {
    const std::string command = fmt::format("/usr/bin/python3 {} {} '{}' 2> '{}/errors'", LOCKSTEP_ONNX_CHECK, how,
                                            folder().string(), folder().string());
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }

 private:
  // Inputs and outputs of batches of 1 and 7.
  void write_examples(const OnnxCase& c) const {
    const NoGradGuard no_grad;
    for (const std::int64_t batch : {1, 7}) {
      std::vector<Tensor> in;
      for (std::size_t i = 0; i < c.examples.size(); ++i)
        in.push_back(rows(c.examples[i], c.options.batch_axes.empty() ? 0 : c.options.batch_axes[i], batch));
      const std::vector<Tensor> out = c.forward(in);
      const auto file = [&](const char* what, std::size_t i) {
        return folder() / fmt::format("{}.{}.{}{}.npy", c.name, batch, what, i);
      };
      for (std::size_t i = 0; i < in.size(); ++i) write_npy(file("in", i), in[i]);
      for (std::size_t i = 0; i < out.size(); ++i) write_npy(file("out", i), out[i]);
    }
  }

  const TemporaryFolder temporary_;
  const char* const kept_;
};

bool python_has(const std::string& module) {
  return std::system(fmt::format("/usr/bin/python3 -c 'import {}' 2> /dev/null", module).c_str()) == 0;
}

TEST(ExportOnnxTest, FilesPassTheChecker) {
  const Files files;
  if (!python_has("onnx")) GTEST_SKIP() << "python3-onnx is not installed";
  files.check("checker");
}

TEST(ExportOnnxTest, OnnxRuntimeGivesTheOutputs) {
  if (!python_has("onnxruntime")) GTEST_SKIP() << "python3-onnxruntime is not installed";
  Files().check("onnxruntime");
}

// A small reader of the parts of a file that the tests look at.
struct ReadFile {
  struct Node {
    std::string type, name;
    std::vector<std::string> inputs;
  };
  std::vector<Node> nodes;
  std::map<std::string, std::string> initializers;  // elements
  std::map<std::string, std::string> metadata;
  std::map<std::string, std::vector<std::string>> shapes;  // of inputs and outputs
  std::int64_t ir = 0, opset = 0;

  explicit ReadFile(const std::filesystem::path& path) {
    const std::string bytes = read_file(path, std::size_t{1} << 30);
    protozero::pbf_reader model(bytes);
    while (model.next()) {
      switch (model.tag()) {
        case 1: ir = model.get_int64(); break;
        case 7: graph(model.get_message()); break;
        case 8: {
          protozero::pbf_reader set = model.get_message();
          while (set.next()) set.tag() == 2 ? static_cast<void>(opset = set.get_int64()) : set.skip();
          break;
        }
        case 14: {
          protozero::pbf_reader entry = model.get_message();
          std::array<std::string, 2> texts;
          while (entry.next()) texts.at(entry.tag() - 1) = entry.get_string();
          metadata[texts[0]] = texts[1];
          break;
        }
        default: model.skip();
      }
    }
  }

  std::vector<std::string> types() const {
    std::vector<std::string> all;
    for (const Node& node : nodes) all.push_back(node.type);
    return all;
  }

 private:
  void graph(protozero::pbf_reader graph) {
    while (graph.next()) {
      if (graph.tag() == 1) {
        protozero::pbf_reader message = graph.get_message();
        Node node;
        while (message.next()) {
          switch (message.tag()) {
            case 1: node.inputs.push_back(message.get_string()); break;
            case 3: node.name = message.get_string(); break;
            case 4: node.type = message.get_string(); break;
            default: message.skip();
          }
        }
        nodes.push_back(std::move(node));
      } else if (graph.tag() == 5) {
        protozero::pbf_reader tensor = graph.get_message();
        std::string name, elements;
        while (tensor.next()) {
          switch (tensor.tag()) {
            case 8: name = tensor.get_string(); break;
            case 9: elements = tensor.get_bytes(); break;
            default: tensor.skip();
          }
        }
        initializers[name] = elements;
      } else if (graph.tag() == 11 || graph.tag() == 12) {
        value(graph.get_message());
      } else {
        graph.skip();
      }
    }
  }

  void value(protozero::pbf_reader info) {
    std::string name;
    while (info.next()) {
      if (info.tag() == 1) {
        name = info.get_string();
        continue;
      }
      protozero::pbf_reader type = info.get_message();
      ASSERT_TRUE(type.next(1));
      protozero::pbf_reader tensor = type.get_message();
      ASSERT_TRUE(tensor.next(2));
      protozero::pbf_reader shape = tensor.get_message();
      while (shape.next(1)) {
        protozero::pbf_reader extent = shape.get_message();
        ASSERT_TRUE(extent.next());
        shapes[name].push_back(extent.tag() == 1 ? std::to_string(extent.get_int64()) : extent.get_string());
      }
    }
  }
};

struct OnnxTest : ::testing::Test {
  TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "model.onnx";
  const Tensor x = randn({2, 3}, {.seed = 1});

  // Exports f of `x`, which belongs to a model with one child, "layer".
  void write(const std::function<Tensor(const Tensor&)>& f, const OnnxOptions& options = {}) {
    struct Layer : Module {
      explicit Layer(std::function<Tensor(const Tensor&)> of) : f(std::move(of)) {}
      Tensor forward(const Tensor& in) override { return f(in); }
      std::function<Tensor(const Tensor&)> f;
    };
    struct Net : Module {
      explicit Net(const std::function<Tensor(const Tensor&)>& of) : layer(make<Layer>("layer", of)) {}
      Tensor forward(const Tensor& in) override { return layer(in); }
      Layer& layer;
    };
    Net net(f);
    export_onnx(path, net, x, options);
  }
};

TEST_F(OnnxTest, KeepsNamesOfWeightsAndLeavesTheBatchOpen) {
  const auto net = lenet();
  export_onnx(path, *net, randn({1, 1, 28, 28}), {.metadata = {{"classes", "shirt\nshoe"}}});
  EXPECT_TRUE(net->training());
  const ReadFile file(path);
  EXPECT_EQ(file.opset, 17);
  EXPECT_EQ(file.ir, 8);
  EXPECT_EQ(file.types(), (std::vector<std::string>{"Conv", "MaxPool", "Relu", "Conv", "MaxPool", "Relu", "Reshape",
                                                    "Gemm", "Relu", "Gemm", "Relu", "Gemm", "Identity"}));
  EXPECT_EQ(file.nodes[0].name, "0/Conv");
  for (const auto& [name, value] : state_dict(*net)) {
    ASSERT_TRUE(file.initializers.contains(name)) << name;
    const std::vector<float> elements = value.to_vector<float>();
    EXPECT_EQ(file.initializers.at(name),
              std::string(reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(float)));
  }
  EXPECT_EQ(file.shapes.at("input"), (std::vector<std::string>{"batch", "1", "28", "28"}));
  EXPECT_EQ(file.shapes.at("output"), (std::vector<std::string>{"batch", "10"}));
  EXPECT_EQ(file.metadata.at("classes"), "shirt\nshoe");
}

TEST_F(OnnxTest, AModelOnSeveralDevicesHasTheSameFile) {
  const std::filesystem::path other = folder.path() / "other.onnx";
  const Runtime one({.devices = 1}), two({.devices = 2});
  for (const auto& [runtime, file] : {std::pair{&one, &path}, std::pair{&two, &other}}) {
    Linear net(3, 4);
    net.initialize(Normal{0.1}, runtime->devices());
    export_onnx(*file, net, x);
  }
  EXPECT_EQ(read_file(path, 1 << 20), read_file(other, 1 << 20));
}

TEST_F(OnnxTest, FixesTheBatchIfAsked) {
  write([](const Tensor& in) { return flatten(in, 0); },
        {.dynamic_batch = false, .input_names = {"rows"}, .output_names = {"all"}});
  const ReadFile file(path);
  EXPECT_EQ(file.shapes.at("rows"), (std::vector<std::string>{"2", "3"}));
  EXPECT_EQ(file.shapes.at("all"), (std::vector<std::string>{"6"}));
  // Two passes of inputs of these shapes have to agree.
  std::uint64_t seed = 0;
  EXPECT_ERROR(write([&](const Tensor& in) { return in + rand({3}, {.seed = ++seed}); }, {.dynamic_batch = false}),
               "takes a tensor of [3] that no operation has made from the inputs");
  EXPECT_ERROR(write([](const Tensor& in) { return in + in.shards()[0]; }, {.dynamic_batch = false}),
               "takes a tensor of [2, 3] that no operation has made from the inputs");
  std::int64_t count = 0;
  EXPECT_ERROR(write([&](const Tensor& in) { return in.slice(1, 0, ++count); }, {.dynamic_batch = false}),
               "an extent is 1 in one pass and 2 in another");
}

TEST_F(OnnxTest, ATensorMayBeTheExampleOfTwoInputs) {
  Identity net;
  export_onnx(path, net, {x, x}, [](std::span<const Tensor> in) { return std::vector{in[0] - in[1]}; },
              {.dynamic_batch = false});
  EXPECT_EQ(ReadFile(path).nodes.at(0).inputs, (std::vector<std::string>{"input0", "input1"}));
}

// What a u8 value is as a condition is not what it is as a number.
TEST_F(OnnxTest, BytesThatAreConditionsKeepTheirValues) {
  Identity net;
  const Tensor bytes = randint(256, {2, 3}, {.dtype = DType::u8, .seed = 3});
  export_onnx(path, net, {bytes}, [](std::span<const Tensor> in) {
    const Tensor mask = in[0] != 0, numbers = in[0].to(DType::f32);
    return std::vector{numbers * mask};
  });
  const ReadFile file(path);
  EXPECT_EQ(file.types(), (std::vector<std::string>{"Cast", "Cast", "Cast", "Mul", "Identity"}));
  EXPECT_EQ(file.nodes[1].inputs, (std::vector<std::string>{"input"}));
}

TEST_F(OnnxTest, WholeNumbersAreComparedWithFractions) {
  Identity net;
  const auto types = [&](double number) {
    export_onnx(path, net, {randint(4, {2, 3}, {.seed = 3})},
                [&](std::span<const Tensor> in) { return std::vector{in[0] < number}; });
    return ReadFile(path).types();
  };
  EXPECT_EQ(types(2), (std::vector<std::string>{"Less", "Identity"}));
  for (const double number : {0.5, 1e30, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_EQ(types(number), (std::vector<std::string>{"Cast", "Less", "Identity"}));
}

TEST_F(OnnxTest, OperationsThatOnnxLacksAreErrorsWithTheModule) {
  EXPECT_ERROR(write([](const Tensor& in) { return atan2(in, in); }), "'atan2' in module 'layer' has no form in ONNX");
  EXPECT_ERROR(write([](const Tensor& in) { return dropout(in, 0.5); }), "'dropout' in module 'layer' has no form");
  EXPECT_FALSE(std::filesystem::exists(path));
  // Only what the output needs counts.
  write([](const Tensor& in) {
    atan2(in, in);
    return relu(in);
  });
  EXPECT_EQ(ReadFile(path).types(), (std::vector<std::string>{"Relu", "Identity"}));
}

TEST_F(OnnxTest, ReadsAndWritesOfElementsAreErrors) {
  EXPECT_ERROR(write([](const Tensor& in) { return in * static_cast<double>(sum(in).item()); }),
               "'item' in module 'layer' reads elements that depend on the input");
  EXPECT_ERROR(write([](const Tensor& in) { return in.index({gt(in, 0)}); }), "reads elements");
  EXPECT_ERROR(write([](const Tensor& in) {
                 const Tensor y = in * 2.0;
                 y.select(0, 0).fill_(1);
                 return y;
               }),
               "a write in place in module 'layer'");
  // Those of weights and constants may be read.
  write([](const Tensor& in) { return in * static_cast<double>(ones({1}).item()); });
}

TEST_F(OnnxTest, WhatDiffersBetweenBatchesInOtherWaysIsAnError) {
  EXPECT_ERROR(write([](const Tensor& in) { return in.size(0) > 4 ? relu(in) : tanh(in); }),
               "operation 0 is 'tanh' in module 'layer' in one pass and 'relu'");
  EXPECT_ERROR(write([](const Tensor& in) { return in.size(0) > 4 ? relu(relu(in)) : relu(in); }), "one pass has");
  EXPECT_ERROR(write([](const Tensor& in) {
                 return in + linspace(0, 1, in.size(0)).reshape({in.size(0), 1});
               }),
               "takes a tensor of [3] that no operation has made from the inputs");
  EXPECT_ERROR(write([](const Tensor& in) { return in + mean(in, 0); }),
               "the number scale of 'affine' in module 'layer'");
  EXPECT_ERROR(write([](const Tensor& in) { return in.slice(0, 0, in.size(0) - 1); }),
               "expected a multiple of its size");
  // All of the first batch, but not of the second.
  EXPECT_ERROR(write([](const Tensor& in) { return in.slice(0, 0, std::min<std::int64_t>(in.size(0), 4)); }),
               "expected a multiple of its size");
  // Elements that reach the result by other means.
  EXPECT_ERROR(write([](const Tensor& in) { return in + in.shards()[0]; }), "no operation has made from the inputs");
}

struct Twice : Function {
  Tensor forward(const Tensor& in) { return in + in; }
  Tensor backward(const Tensor& dy) { return dy * 2.0; }
};
struct Elsewhere : Function {
  Tensor forward(const Tensor& in) { return in.shards()[0]; }
  Tensor backward(const Tensor& dy) { return dy; }
};

TEST_F(OnnxTest, FunctionsOfTheProgramAreTracedThrough) {
  write([](const Tensor& in) { return relu(apply<Twice>(in)); });
  EXPECT_EQ(ReadFile(path).types(), (std::vector<std::string>{"Add", "Relu", "Identity"}));
  EXPECT_ERROR(write([](const Tensor& in) { return relu(apply<Elsewhere>(in)); }), "Elsewhere' in module 'layer'");
}

TEST_F(OnnxTest, InputsAreChecked) {
  EXPECT_ERROR(write([](const Tensor& in) { return in; }, {.batch_axes = {2}}), "batch axis 2 of example 0");
  EXPECT_ERROR(write([](const Tensor& in) { return in; }, {.batch_axes = {-1}}), "no example has a batch axis");
  EXPECT_ERROR(write([](const Tensor& in) { return in; }, {.input_names = {"a", "b"}}), "2 input names for 1");
  EXPECT_ERROR(write([](const Tensor& in) { return in; }, {.output_names = {"input"}}), "an output is named 'input'");
}

}  // namespace
}  // namespace lockstep::testing
