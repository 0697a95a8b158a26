#include "tests/models/documented_differences.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <regex>
#include <sstream>
#include <vector>

#include "tests/models/sample_functions.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_minus_zero(double x) { return x == 0 && std::signbit(x); }
bool is_plus_zero(double x) { return x == 0 && !std::signbit(x); }
bool is_close(double x, double y) { return std::abs(x - y) <= 1e-5 * std::abs(y); }

bool is_one_of(const std::string& word, const std::string& words) {
  std::istringstream stream(words);
  return std::ranges::find(std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>(), word) !=
         std::istream_iterator<std::string>();
}

// Elementwise functions of one tensor. x is its element.
bool is_documented_at(const SampleInput& s, const DifferentElement& e, double x) {
  const std::string& f = s.function;
  const auto number = [&](const char* name) { return sample_number(s.arguments.at(name)); };
  if (e.gradient) {
    // PyTorch's is 0 at the limits, and at NaN 0 or not, depending on the place in the tensor.
    const auto is_at = [&](double low, double high) {
      return std::isnan(x) || (e.expected == 0 && (x == low || x == high));
    };
    if (f == "hardtanh") return is_at(number("min"), number("max"));
    if (f == "relu6") return is_at(0, 6);
    if (f == "hardsigmoid") return is_at(-3, 3);
    if (f == "hardshrink" || f == "softshrink") return is_at(-number("a"), number("a"));
    // Which of them is NaN decides.
    if (f == "clamp_tensors") {
      return std::ranges::any_of(s.inputs, [&](const json& input) {
        const json& v = input.at("v");
        return e.index < v.size() && v.at(e.index) == "nan";
      });
    }
    if (f == "selu" || f == "celu") return std::isnan(x) && std::isnan(e.found);
    if (f == "relu") return std::isnan(x) && e.found == 0;
    if (f == "elu") return std::isnan(x) && std::isnan(e.found);
    if (f != "pow_number") return false;
    const double exponent = number("number") - 1;
    // As the outputs.
    if (x == -kInfinity && std::abs(exponent) == 0.5)
      return std::isnan(e.expected) && std::abs(e.found) == (exponent > 0 ? kInfinity : 0);
    if (is_minus_zero(x) && exponent == -0.5) return std::isinf(e.found) && e.found == -e.expected;
    // The exponent is rounded to f32: to a whole number that it is not, or to an even one.
    const bool rounded = exponent != static_cast<double>(static_cast<float>(exponent));
    return x < 0 && rounded && (std::isnan(e.expected) || e.found == -e.expected);
  }
  if (f == "sign") return std::isnan(x) ? std::isnan(e.found) : is_minus_zero(x) && is_minus_zero(e.found);
  if (is_one_of(f, "relu sin tanh")) return is_minus_zero(x) && is_plus_zero(e.found);
  if (f == "multiply_number") return is_minus_zero(static_cast<float>(x * number("number"))) && is_plus_zero(e.found);
  if (f == "softshrink") return std::isnan(x) && std::isnan(e.found);
  // The exponent's rounding grows with it.
  if (f == "gelu" && std::abs(e.found - e.expected) <= 0x1p-20 * std::abs(e.expected)) return true;
  if (f == "elu") {
    const bool exact = x < 0 && x > -1e-7 && is_close(e.found, number("a") * x);
    return e.expected == 0 && (exact || (is_minus_zero(x) && is_minus_zero(e.found)));
  }
  if (f == "gelu") return x < -8 && e.expected == 0 && is_close(e.found, x * std::erfc(-x / std::sqrt(2)) / 2);
  if (f == "pow_number" && std::abs(number("number")) == 0.5) {
    // As in C. PyTorch takes the square root.
    if (x == -kInfinity) return std::isnan(e.expected) && e.found == (number("number") > 0 ? kInfinity : 0);
    return is_minus_zero(x) && e.found == -e.expected && !std::signbit(e.found);
  }
  return false;
}

struct KnownLimit {
  Limit limit;
  std::string functions;
  std::string message;  // a regular expression; OP stands for the operation's name in messages
  bool (*applies)(const SampleInput&);
};

// The operation that refuses the arguments of a function.
std::string operation_of(const std::string& function) {
  if (is_one_of(function, "add_number add_right multiply_number multiply_right")) return "affine";
  if (is_one_of(function, "bmm einsum linear")) return "matmul";
  if (is_one_of(function, "add_multiple")) return "(add|affine)";
  if (function == "index_add") return "(index_add|scatter_add|affine)";
  if (function == "outer") return "multiply";
  if (is_one_of(function, "cdist normalize")) return "norm";
  if (function == "pairwise_distance") return "(pairwise_distance|norm)";
  if (function == "avg_pool1d") return "avg_pool[12]d";
  if (function == "avg_pool3d") return "avg_pool[23]d";
  if (function == "conv_transpose1d") return "conv_transpose2d";
  if (function == "take_along_dim") return "take_along_(dim|axis)";
  return std::regex_replace(function, std::regex("_(number|right|dim|to)$"), "");
}

bool has_no_axes(const SampleInput& s) { return s.inputs.at(0).at("s").empty(); }
bool always(const SampleInput&) { return true; }

// "[2, 3] f32 on cpu:0", whose type and place are missing in some messages.
std::string tensor_of(const char* types) { return fmt::format(R"((\[[0-9, ]*\] )?({})( on cpu:0)?)", types); }

KnownLimit refused_type(const char* type, const std::string& functions) {
  const std::string found = "OP: (a|inputs?|the source) (is|are) " + tensor_of(type);
  return {Limit::type, functions, found + ", expected a floating type(: cast\\(\\) (it|them))?", always};
}

const std::vector<KnownLimit>& known_limits() {
  static const std::string kAny = tensor_of("f32|i64|bool"), kWhole = tensor_of("i64");
  static const std::string kOfEither = "logsumexp sign avg_pool3d softsign tanhshrink threshold relu6 hardtanh ";
  static const std::vector<KnownLimit> all{
      refused_type("i64", kOfEither + "avg_pool1d avg_pool2d bmm conv1d conv2d einsum linear matmul "
                                      "pairwise_distance pow pow_number pow_right relu"),
      refused_type("bool", kOfEither),
      {Limit::type, "pow_right", fmt::format("OP: .* with {}, expected a floating type: cast\\(\\) it", kWhole),
       always},
      {Limit::type, "scatter_number",
       "scatter: 2.5 in a tensor of (i64|u8), expected a whole number of its range: cast\\(\\) the tensor", always},
      {Limit::type,
       "cosine_embedding_loss gaussian_nll_loss hinge_embedding_loss margin_ranking_loss poisson_nll_loss "
       "soft_margin_loss triplet_margin_loss",
       fmt::format("OP: {0} and {0}, expected one floating type", kAny), always},
      {Limit::type, "conv_transpose1d conv_transpose2d",
       fmt::format("OP: input is {0}, weight is {0}, expected one floating type .*", kWhole), always},
      {Limit::type, "cat",
       fmt::format("OP: {0} and {0}, expected the same type, and the same shape except on axis 0", kAny),
       [](const SampleInput& s) { return s.inputs.at(0).at("s") == json::array({0}); }},
      {Limit::other, "hardtanh", "OP: limits .*, expected the lower one first",
       [](const SampleInput& s) {
         return sample_number(s.arguments.at("min")) >= sample_number(s.arguments.at("max"));
       }},
      {Limit::other, "multi_margin_loss multilabel_margin_loss", "OP: input is \\[\\] f32 .*, expected floating .*",
       always},
      {Limit::other, "multi_margin_loss", "OP: labels are \\[1\\] i64 .*, one for each row of \\[5\\] .*", always},
      {Limit::other, "gaussian_nll_loss", "OP: .* and \\[\\] f32 .*, expected the same shape", always},
      {Limit::other, "norm cdist normalize pairwise_distance", "OP: p is .*, expected at least 1",
       [](const SampleInput& s) { return sample_number(s.arguments.at("p")) < 1; }},
      {Limit::other, "cummax cummin index_add scatter scatter_add scatter_number take_along_dim transpose",
       R"(OP: axis 0 of shape \[\], expected 0 to -1)", has_no_axes},
      {Limit::other, "take_along_dim", "OP: the index is u8, expected i64",
       [](const SampleInput& s) { return s.inputs.at(1).at("t") == "u8"; }},
      {Limit::other, "cross_entropy",
       "OP: weight requires a gradient, which classes' weights do not get: pass weight.detach\\(\\)",
       [](const SampleInput& s) { return s.inputs.size() == 3; }}};
  return all;
}

// Whether the two places along the axis hold equal elements.
bool are_equal_in_row(const SampleInput& s, const DifferentElement& e) {
  const json& x = s.inputs.at(0);
  const auto shape = x.at("s").get<std::vector<std::size_t>>();
  if (shape.empty()) return false;
  const int dim = s.arguments.at("dim").get<int>();
  const std::size_t axis = static_cast<std::size_t>(dim < 0 ? dim + static_cast<int>(shape.size()) : dim);
  std::size_t inner = 1;
  for (std::size_t i = axis + 1; i < shape.size(); ++i) inner *= shape[i];
  const std::size_t outer = e.index / (inner * s.arguments.at("k").get<std::size_t>());
  const auto element = [&](double place) {
    return x.at("v").at((outer * shape[axis] + static_cast<std::size_t>(place)) * inner + e.index % inner);
  };
  return element(e.found) == element(e.expected);
}

}  // namespace

bool is_documented(const SampleInput& s, const DifferentElement& e) {
  const json& x = s.inputs.at(0).at("v");
  // PyTorch sorts long rows in an order of equal elements that is not theirs.
  const bool sorts = (s.function == "sort" && e.tensor == 1) || (s.function == "argsort" && e.tensor == 0);
  if (sorts && !e.gradient && x.size() > 1000)
    return x.at(static_cast<std::size_t>(e.found)) == x.at(static_cast<std::size_t>(e.expected));
  // As topk() does with equal elements in any row.
  if (s.function == "topk" && e.tensor == 1 && !e.gradient) return are_equal_in_row(s, e);
  // PyTorch's is that for results of log_softmax() alone.
  if (s.function == "ctc_loss") return e.gradient;
  if (e.gradient && s.function == "remainder")
    return e.tensor == 1 && std::isinf(e.found) && std::abs(e.expected) > 1e38;
  // Squares of coordinates that are denormal or nearly so.
  if (e.gradient && s.function == "atan2") {
    const bool small = std::ranges::all_of(s.inputs, [&](const json& input) {
      return e.index < input.at("v").size() && std::abs(sample_number(input.at("v").at(e.index))) < 1e-19;
    });
    return small || std::abs(e.found - e.expected) <= 1e-5 * std::abs(e.expected);
  }
  return e.index < x.size() && is_documented_at(s, e, sample_number(x.at(e.index)));
}

Limit documented_limit(const SampleInput& s, const std::string& error) {
  for (const KnownLimit& known : known_limits()) {
    if (!is_one_of(s.function, known.functions) || !known.applies(s)) continue;
    const std::string message = std::regex_replace(known.message, std::regex("^OP"), operation_of(s.function));
    if (std::regex_match(error, std::regex(message))) return known.limit;
  }
  return Limit::none;
}

}  // namespace lockstep::testing
