// Functions whose result has a size that depends on the data.
#include "lockstep/autograd/data_dependent.h"
#include "lockstep/autograd/checkpoint_scope.h"

#include <algorithm>
#include <numeric>

#include "lockstep/autograd/axes.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/index.h"
#include "lockstep/ops/shape.h"
#include "lockstep/runtime/step_recorder.h"

namespace lockstep {
namespace {

void check_readable(std::string_view name, const Tensor& x) {
  check(x.defined(), "{}: undefined tensor", name);
  if (x->kind == Kind::cut) fail_across_batch(name, x, "and the size of the result would depend on all of them");
  if (StepRecorder* recorder = StepRecorder::current())
    recorder->refuse(fmt::format("the size of {}'s result depends on data", name));
}

// Returns x's elements. Waits for them.
template <typename T>
std::vector<T> elements_of(const Tensor& x) {
  return x.detach().to_vector<T>();
}

Tensor placed_as(const Tensor& x, const std::vector<std::int64_t>& numbers, const Shape& shape) {
  return beside(x, Tensor::from(numbers, shape));
}

// Indices, in plain order, of the elements that are not 0.
std::vector<std::int64_t> places_of(const Tensor& x) {
  CheckpointScope::read("nonzero", {&x, 1});
  const std::vector<std::uint8_t> holds = elements_of<std::uint8_t>(is_mask(x.dtype()) ? x : ne(x, 0));
  std::vector<std::int64_t> places;
  for (std::size_t i = 0; i < holds.size(); ++i) {
    if (holds[i] != 0) places.push_back(static_cast<std::int64_t>(i));
  }
  return places;
}

// first, counts: the first index and the count of each different element; inverse: the group of each element.
struct Groups {
  std::vector<std::int64_t> first, inverse, counts;
};

// Groups `count` rows of equal length.
template <typename T>
Groups groups_of(const std::vector<T>& x, std::int64_t count) {
  const std::int64_t length = count == 0 ? 0 : std::ssize(x) / count;
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](std::int64_t i) { return x.begin() + i * length; };
  const auto less = [](T a, T b) { return a < b || (a == a && b != b); };
  std::ranges::stable_sort(order, [&](std::int64_t i, std::int64_t j) {
    return std::lexicographical_compare(at(i), at(i) + length, at(j), at(j) + length, less);
  });
  Groups groups{{}, std::vector<std::int64_t>(order.size()), {}};
  for (std::size_t k = 0; k < order.size(); ++k) {
    const std::int64_t i = order[k];
    if (k == 0 || !std::equal(at(i), at(i) + length, at(order[k - 1]))) {
      groups.first.push_back(i);
      groups.counts.push_back(0);
    }
    ++groups.counts.back();
    groups.inverse[static_cast<std::size_t>(i)] = std::ssize(groups.counts) - 1;
  }
  return groups;
}

Groups groups_of(const Tensor& x, std::int64_t count) {
  return is_floating(x.dtype())    ? groups_of(elements_of<double>(cast(x, DType::f64)), count)
         : x.dtype() == DType::i64 ? groups_of(elements_of<std::int64_t>(x), count)
                                   : groups_of(elements_of<std::uint8_t>(x), count);
}

}  // namespace

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  check_readable("masked_select", x);
  check_readable("masked_select", mask);
  check(is_mask(mask.dtype()), "masked_select: the mask is {}, expected bool, as comparisons return, or u8", mask);
  const Shape shape = ops::broadcast_shape("masked_select", x.shape(), mask.shape());
  const std::vector<std::int64_t> places = places_of(expand(mask, shape));
  return index_select(flatten(expand(x, shape)), 0, placed_as(x, places, {std::ssize(places)}));
}

Tensor nonzero(const Tensor& x) {
  check_readable("nonzero", x);
  const std::vector<std::int64_t> places = places_of(x);
  const int dims = x.shape().dim();
  std::vector<std::int64_t> numbers;
  for (std::int64_t place : places) {
    std::int64_t rest = x.numel();
    for (int i = 0; i < dims; ++i) {
      rest /= x.size(i);
      numbers.push_back(place / rest);
      place %= rest;
    }
  }
  return placed_as(x, numbers, {std::ssize(places), dims});
}

UniqueResult unique(const Tensor& x) {
  check_readable("unique", x);
  const Tensor plain = x.detach();
  const Groups groups = groups_of(plain, x.numel());
  const Shape size{std::ssize(groups.first)};
  return {index_select(flatten(plain), 0, placed_as(x, groups.first, size)), placed_as(x, groups.inverse, x.shape()),
          placed_as(x, groups.counts, size)};
}

UniqueResult unique(const Tensor& x, int dim) {
  check_readable("unique", x);
  const int axis = ops::resolve_axis("unique", x.shape(), dim);
  const Tensor plain = x.detach();
  const Groups groups = groups_of(movedim(plain, axis, 0), x.size(axis));
  const Shape size{std::ssize(groups.first)};
  return {index_select(plain, axis, placed_as(x, groups.first, size)), placed_as(x, groups.inverse, {x.size(axis)}),
          placed_as(x, groups.counts, size)};
}

Tensor bincount(const Tensor& x, const Tensor& weights, std::int64_t minlength) {
  check_readable("bincount", x);
  check(!is_floating(x.dtype()) && x.shape().dim() == 1, "bincount: the input is {}, expected whole numbers [n]", x);
  check(minlength >= 0, "bincount: minlength {}, expected at least 0", minlength);
  const Tensor numbers = cast(x, DType::i64);
  std::int64_t length = minlength;
  for (std::int64_t number : elements_of<std::int64_t>(numbers)) {
    check(number >= 0, "bincount: found {}, expected no negative number", number);
    length = std::max(length, number + 1);
  }
  if (weights.defined()) {
    check_readable("bincount", weights);
    check(weights.shape() == x.shape() && is_floating(weights.dtype()),
          "bincount: the weights are {}, expected {} of a floating type", weights, x.shape());
  }
  // Counts are exact in f64.
  const DType dtype = weights.defined() ? weights.dtype() : DType::f64;
  const Tensor counted = weights.defined() ? weights.detach() : full(x.shape(), 1, like(x, dtype));
  const Tensor sums = scatter_add(full({length}, 0, like(x, dtype)), 0, numbers, counted);
  return weights.defined() ? sums : cast(sums, DType::i64);
}

Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, int dim) {
  constexpr std::string_view kName = "repeat_interleave";
  check(x.defined(), "{}: undefined tensor", kName);
  check_readable(kName, repeats);
  const int axis = ops::resolve_axis(kName, x.shape(), dim);
  check(repeats.dtype() == DType::i64 && repeats.shape() == Shape{x.size(axis)},
        "{}: the numbers are {}, expected i64 [{}], one for each element of axis {} of {}", kName, repeats,
        x.size(axis), dim, x.shape());
  std::vector<std::int64_t> places;
  std::int64_t place = 0;
  for (std::int64_t count : elements_of<std::int64_t>(repeats)) {
    check(count >= 0, "{}: {} times, expected at least 0", kName, count);
    places.insert(places.end(), static_cast<std::size_t>(count), place++);
  }
  return index_select(x, axis, placed_as(x, places, {std::ssize(places)}));
}

}  // namespace lockstep
