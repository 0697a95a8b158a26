// Samples of PyTorch's own tests, and special values: tests/parity/samples_reference.py writes them with what PyTorch
// computes. A part of them is in the repository. LOCKSTEP_PARITY_SAMPLES=FILE computes those of a file instead, and
// prints the counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/runtime/runtime.h"
#include "tests/logical_tensors.h"
#include "tests/models/documented_differences.h"
#include "tests/models/sample_functions.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;

constexpr double kEps = 0x1p-23;

// An output or a gradient as PyTorch computes it in f64.
struct ExpectedValues {
  std::string type;
  Shape shape;
  std::vector<double> values;
  std::map<std::size_t, double> errors;  // of PyTorch's f32, where they are more than one rounding
  // PyTorch's f32, where it is infinite or NaN and f64 is not, or the reverse.
  std::map<std::size_t, double> in_f32;
};

// What a function computed, or an undefined gradient.
struct FoundValues {
  bool defined = false;
  std::string type;
  Shape shape;
  std::vector<double> values;
};

struct Sample {
  std::string suite, name, function;
  bool elementwise = false;
  json inputs, arguments;
  std::vector<ExpectedValues> outputs;
  std::vector<std::optional<ExpectedValues>> gradients;
};

struct Outcome {
  std::string error;  // the library's, if it refuses the sample
  std::vector<FoundValues> outputs, gradients;
  double largest_input = 0;
};

Shape sample_shape(const json& tensor) { return Shape(tensor.at("s").get<std::vector<std::int64_t>>()); }

ExpectedValues expected_values(const json& tensor) {
  ExpectedValues e{tensor.at("t"), sample_shape(tensor), {}, {}, {}};
  for (const json& v : tensor.at("v")) e.values.push_back(sample_number(v));
  const auto entries = [&](const char* key, std::map<std::size_t, double>& to) {
    if (!tensor.contains(key)) return;
    for (const json& entry : tensor.at(key)) to[entry.at(0)] = sample_number(entry.at(1));
  };
  entries("e", e.errors);
  entries("f32", e.in_f32);
  return e;
}

Sample sample_of(const json& line) {
  Sample s{line.at("suite"), line.at("name"), line.at("f"), line.at("elementwise"), line.at("x"), line.at("a"), {}, {}};
  for (const json& y : line.at("y")) s.outputs.push_back(expected_values(y));
  for (const json& g : line.at("dx"))
    s.gradients.push_back(g.is_null() ? std::nullopt : std::optional(expected_values(g)));
  return s;
}

// A leaf only where PyTorch has a gradient: class weights have none.
Tensor input_of(const json& tensor, bool leaf, Device device) {
  const Shape shape = sample_shape(tensor);
  const std::string type = tensor.at("t");
  if (type == "i64") return Tensor::from(tensor.at("v").get<std::vector<std::int64_t>>(), shape).to(device);
  if (type == "u8" || type == "bool") {
    const Tensor bytes = Tensor::from(tensor.at("v").get<std::vector<std::uint8_t>>(), shape);
    return bytes.to(type == "u8" ? DType::u8 : DType::boolean).to(device);
  }
  std::vector<float> values;
  for (const json& v : tensor.at("v")) values.push_back(static_cast<float>(sample_number(v)));
  return Tensor::from(values, shape).to(device).set_requires_grad(leaf);
}

FoundValues found_values(const Tensor& t) {
  if (!t.defined()) return {};
  return {true, std::string(name(t.dtype())), t.shape(), values(t)};
}

// What returns its input's memory in PyTorch, too.
bool is_view(const std::string& function) {
  constexpr std::string_view kViews[] = {"reshape",    "flatten",   "unflatten", "squeeze",  "unsqueeze",
                                         "permute",    "transpose", "expand",    "narrow",   "select",
                                         "slice",      "split",     "chunk",     "unbind",   "movedim",
                                         "contiguous", "cast",      "t",         "meshgrid", "split_sizes"};
  return std::ranges::find(kViews, function) != std::end(kViews);
}

Outcome compute(const Sample& s, const SampleFunction& f, Device device) {
  Outcome outcome;
  try {
    SampleCall call{{}, s.arguments};
    for (const json& x : s.inputs) {
      call.x.push_back(input_of(x, s.gradients.at(call.x.size()).has_value(), device));
      if (!is_floating(call.x.back().dtype())) continue;
      for (double v : values(call.x.back())) {
        if (std::isfinite(v)) outcome.largest_input = std::max(outcome.largest_input, std::abs(v));
      }
    }
    std::vector<Tensor> roots, seeds;
    for (const Tensor& y : f(call)) {
      for (const Tensor& x : call.x) {
        const bool shares = !is_view(s.function) && y.numel() > 0 && shares_memory(x, y);
        EXPECT_FALSE(shares) << s.function << " " << s.arguments.dump() << ": the result is the input's memory";
      }
      outcome.outputs.push_back(found_values(y));
      if (!y.requires_grad()) continue;
      std::vector<float> weights;
      for (std::int64_t i = 0; i < y.numel(); ++i) weights.push_back(static_cast<float>(i * 7 % 11 - 5) / 5);
      roots.push_back(y);
      seeds.push_back(Tensor::from(weights, y.shape()).to(device));
    }
    if (!roots.empty()) backward(roots, seeds);
    for (const Tensor& x : call.x)
      outcome.gradients.push_back(found_values(is_floating(x.dtype()) ? x.grad() : Tensor()));
  } catch (const Error& error) {
    outcome.error = error.what();
  }
  return outcome;
}

// Reduced losses, sum(x), and mean(x) have the shape [1].
bool same_shape(const Shape& found, const Shape& expected) {
  return found == expected || (found == Shape{1} && expected == Shape());
}

bool near(double found, double expected, double tolerance) {
  const auto rounded = static_cast<float>(expected);
  if (std::isnan(rounded)) return std::isnan(found);
  if (std::isinf(rounded)) return found == static_cast<double>(rounded);
  return std::abs(found - expected) <= tolerance;
}

// The first difference beyond the rounding errors that two right computations may have, or an empty text.
struct Difference {
  std::string text;
  bool documented = false;  // there are documented ones, and perhaps no other
};

SampleInput as_input(const Sample& s) { return {s.function, s.inputs, s.arguments}; }

// Compares tensor `number` of the outputs, or of the gradients.
Difference difference(const Sample& s, std::size_t number, bool gradient, const FoundValues& found,
                      const ExpectedValues& expected, double largest_input) {
  // The gradient of an operand that was broadcast is a sum.
  const bool elementwise = s.elementwise && (!gradient || expected.shape == s.outputs[0].shape);
  const bool signs = s.elementwise && !gradient;
  Difference result;
  const auto differ = [&](const std::string& text) {
    result.text = fmt::format("{} {} {}", gradient ? "gradient" : "output", number, text);
    return result;
  };
  if (!found.defined) {
    // Places in a grid choose the nearest pixels, which do not change.
    const bool is_zero = std::ranges::all_of(expected.values, [](double v) { return v == 0; });
    result.documented = s.function == "grid_sample" && gradient && number == 1 && is_zero;
    return result.documented ? result : differ("is missing");
  }
  if (!same_shape(found.shape, expected.shape))
    return differ(fmt::format("has the shape {}, expected {}", found.shape, expected.shape));
  if (found.type != expected.type) return differ(fmt::format("is {}, expected {}", found.type, expected.type));
  double largest = 0;
  for (double v : expected.values) {
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  }
  for (std::size_t i = 0; i < found.values.size(); ++i) {
    const double y = found.values[i], wanted = expected.values[i];
    const auto error = expected.errors.find(i), in_f32 = expected.in_f32.find(i);
    const double of_f32 = error == expected.errors.end() ? 0 : error->second;
    // Numbers below the normal ones have few digits.
    const double smallest = signs ? 0x1p-148 : 0x1p-126;
    // A gradient, of seeds up to 1, follows from a saved output or from a slope, which are rounded.
    const double of_saved = signs ? 0 : 4 * kEps;
    const double tolerance =
        expected.type != "f32" ? 0
        : elementwise          ? 4 * kEps * std::abs(wanted) + 2 * of_f32 + smallest + of_saved
                      : 8 * kEps * std::abs(wanted) + 16 * kEps * largest + 4 * of_f32 + 8 * kEps * largest_input;
    const bool as_f32 = in_f32 != expected.in_f32.end() && near(y, in_f32->second, 8 * kEps * std::abs(in_f32->second));
    const bool is_near = as_f32 || near(y, wanted, tolerance);
    const bool zero = y == 0 && static_cast<float>(wanted) == 0.0F;
    if (is_near && !(signs && zero && std::signbit(y) != std::signbit(wanted))) continue;
    if (is_documented(as_input(s), {gradient, number, i, y, wanted})) {
      result.documented = true;
      continue;
    }
    return differ(is_near ? fmt::format("has {} at {}, expected {}", y, i, wanted)
                          : fmt::format("has {:.9g} at {}, expected {:.9g} within {:.3g}", y, i, wanted, tolerance));
  }
  return result;
}

Difference difference(const Sample& s, const Outcome& o) {
  if (o.outputs.size() != s.outputs.size())
    return {fmt::format("{} outputs, expected {}", o.outputs.size(), s.outputs.size())};
  Difference all;
  const auto add = [&](const Difference& d) {
    all.documented |= d.documented;
    all.text = d.text;
    return !d.text.empty();
  };
  for (std::size_t i = 0; i < s.outputs.size(); ++i) {
    if (add(difference(s, i, false, o.outputs[i], s.outputs[i], o.largest_input))) return all;
  }
  for (std::size_t i = 0; i < s.gradients.size(); ++i) {
    if (s.gradients[i] && add(difference(s, i, true, o.gradients[i], *s.gradients[i], o.largest_input))) return all;
  }
  return all;
}

std::vector<Sample> read_samples(const std::string& path, const std::function<void(const Sample&)>& visit = {}) {
  std::vector<Sample> samples;
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::string line;
  std::getline(file, line);  // the version of PyTorch
  while (std::getline(file, line)) {
    Sample s = sample_of(json::parse(line));
    visit ? visit(s) : samples.push_back(std::move(s));
  }
  return samples;
}

struct Counts {
  std::int64_t cases = 0, agree = 0, types = 0, other = 0, documented = 0, disagree = 0;
};

class SamplesParity : public ::testing::TestWithParam<bool> {
 protected:
  void run(const std::string& path) {
    const auto functions = sample_functions();
    read_samples(path, [&](const Sample& s) {
      const Outcome o = compute(s, functions.at(s.function), device_);
      Counts& n = counts_[s.suite];
      ++n.cases;
      if (!o.error.empty()) {
        const Limit limit = documented_limit(as_input(s), o.error);
        ++(limit == Limit::type ? n.types : n.other);
        if (limit != Limit::type) ++errors_[o.error.substr(0, 90)];
        if (limit == Limit::none)
          differences_.push_back(fmt::format("{} ({}) {}: {}", s.function, s.name, s.arguments.dump(), o.error));
        return;
      }
      const Difference d = difference(s, o);
      ++(!d.text.empty() ? n.disagree : d.documented ? n.documented : n.agree);
      if (!d.text.empty())
        differences_.push_back(fmt::format("{} ({}) {}: {}", s.function, s.name, s.arguments.dump(), d.text));
    });
  }

  void print() const {
    for (const auto& [suite, n] : counts_) {
      fmt::print("{}: {} cases, {} agree, {} clear error of type, {} other clear error, {} documented, {} disagree\n",
                 suite, n.cases, n.agree, n.types, n.other, n.documented, n.disagree);
    }
    for (const auto& [error, count] : errors_) fmt::print("{} x {}\n", count, error);
  }

  Runtime runtime_{{.cpu_devices = 1, .cores_per_device = 1, .serial = true, .reference_backend = GetParam()}};
  Device device_ = runtime_.devices()[0];
  std::map<std::string, Counts> counts_;
  std::map<std::string, std::int64_t> errors_;
  std::vector<std::string> differences_;
};

INSTANTIATE_TEST_SUITE_P(BackEnds, SamplesParity, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Reference" : "Cpu"; });

TEST_P(SamplesParity, AsPyTorch) {
  const char* all = std::getenv("LOCKSTEP_PARITY_SAMPLES");
  run(all ? all : LOCKSTEP_SAMPLES_FILE);
  print();
  for (const std::string& d : differences_) ADD_FAILURE() << d;
}

// What the comparison is worth: changed results of samples that agree are noticed.
TEST_P(SamplesParity, NoticesChanges) {
  const auto functions = sample_functions();
  std::int64_t changes = 0, noticed = 0, gradients = 0, missing = 0;
  for (const Sample& s : read_samples(LOCKSTEP_SAMPLES_FILE)) {
    const Outcome o = compute(s, functions.at(s.function), device_);
    const Difference before = difference(s, o);
    if (!o.error.empty() || !before.text.empty() || before.documented) continue;
    for (std::size_t i = 0; i < o.outputs.size(); ++i) {
      const FoundValues& y = o.outputs[i];
      const auto largest =
          std::ranges::max_element(y.values, {}, [](double v) { return std::isfinite(v) ? std::abs(v) : -1; });
      if (largest == y.values.end() || !std::isfinite(*largest) || std::abs(*largest) < 0x1p-100) continue;
      Outcome changed = o;
      changed.outputs[i].values[static_cast<std::size_t>(largest - y.values.begin())] *= 1 + 1e-4;
      ++changes;
      noticed += !difference(s, changed).text.empty();
    }
    for (std::size_t i = 0; i < s.gradients.size(); ++i) {
      if (!s.gradients[i]) continue;
      Outcome changed = o;
      changed.gradients[i] = {};
      ++gradients;
      missing += !difference(s, changed).text.empty();
    }
  }
  EXPECT_GT(changes, 300);
  EXPECT_GT(static_cast<double>(noticed), 0.95 * static_cast<double>(changes));
  EXPECT_GT(gradients, 200);
  EXPECT_EQ(missing, gradients);
}

}  // namespace
}  // namespace lockstep::testing
