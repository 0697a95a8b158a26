// Sums of products by Einstein's notation: each pair of operands becomes a batch of matrix products.
#include "lockstep/autograd/einsum.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"

namespace lockstep {
namespace {

// A letter, or 256 + k for axis k of the ellipsis, counted from its end and from 1.
using Label = int;
using Labels = std::vector<Label>;
constexpr Label kEllipsis = 256;

bool has(const Labels& labels, Label label) { return std::ranges::find(labels, label) != labels.end(); }
int place_of(const Labels& labels, Label label) {
  return static_cast<int>(std::ranges::find(labels, label) - labels.begin());
}

// A tensor with a label for each axis.
struct Term {
  Tensor x;
  Labels labels;

  std::int64_t extent(Label label) const { return x.size(place_of(labels, label)); }
};

// Returns the labels of "ab...c", with `dots` axes for the ellipsis.
Labels parse(std::string_view equation, std::string_view text, int dots) {
  Labels labels;
  bool seen = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '.') {
      check(text.substr(i, 3) == "..." && !seen, "einsum: \"{}\" has dots that are not one ellipsis (...)", equation);
      seen = true;
      i += 2;
      for (int k = dots; k > 0; --k) labels.push_back(kEllipsis + k);
    } else {
      check(std::isalpha(static_cast<unsigned char>(text[i])) != 0, "einsum: \"{}\" has '{}', expected letters",
            equation, text[i]);
      labels.push_back(text[i]);
    }
  }
  return labels;
}

std::vector<std::string_view> split_at(std::string_view text, char mark) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(mark);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// Two axes with one label become their diagonal.
void take_diagonals(std::string_view equation, Term& term) {
  for (std::size_t i = 0; i < term.labels.size(); ++i) {
    for (std::size_t j = i + 1; j < term.labels.size(); ++j) {
      if (term.labels[j] != term.labels[i]) continue;
      const int last = term.x.shape().dim() - 1;
      const std::int64_t n = term.x.size(static_cast<int>(i));
      check(term.x.size(static_cast<int>(j)) == n, "einsum: \"{}\" takes a diagonal of {}, expected equal extents",
            equation, term.x.shape());
      term.x = movedim(term.x, {static_cast<int>(i), static_cast<int>(j)}, {last - 1, last});
      term.x = slice(flatten(term.x, last - 1), last - 1, 0, {}, n + 1);
      const Label label = term.labels[i];
      term.labels.erase(term.labels.begin() + static_cast<std::ptrdiff_t>(j));
      term.labels.erase(term.labels.begin() + static_cast<std::ptrdiff_t>(i));
      term.labels.push_back(label);
      return take_diagonals(equation, term);
    }
  }
}

// Sums over the axes for which `keeps` returns false.
template <typename Keeps>
void sum_others(Term& term, const Keeps& keeps) {
  std::vector<int> axes;
  Labels left;
  for (std::size_t i = 0; i < term.labels.size(); ++i) {
    keeps(term.labels[i]) ? left.push_back(term.labels[i]) : axes.push_back(static_cast<int>(i));
  }
  if (!axes.empty()) term.x = sum(term.x, axes);
  term.labels = left;
}

Tensor in_order(const Term& term, const Labels& labels) {
  std::vector<int> axes;
  for (Label label : labels) axes.push_back(place_of(term.labels, label));
  return std::ranges::is_sorted(axes) ? term.x : permute(term.x, axes);
}

// Merges `count` axes from `first` on; no axes become an axis of extent 1.
Tensor merged(const Tensor& x, int first, std::size_t count) {
  if (count == 0) return unsqueeze(x, first);
  return count == 1 ? x : flatten(x, first, first + static_cast<int>(count) - 1);
}

// The reverse: the axis becomes axes of these extents.
Tensor taken_apart(const Tensor& x, int axis, const std::vector<std::int64_t>& extents) {
  if (extents.empty()) return squeeze(x, axis);
  return extents.size() == 1 ? x : unflatten(x, axis, Shape(std::span<const std::int64_t>(extents)));
}

// The product of two terms, with the labels for which `keeps` returns true.
template <typename Keeps>
Term product_of(std::string_view equation, Term a, Term b, const Keeps& keeps) {
  // Sums over axes that only one operand has and that are not kept, and over axes that the other operand broadcasts.
  const auto wanted = [&](const Term& own, const Term& other) {
    return [&](Label label) {
      if (keeps(label)) return true;
      return has(other.labels, label) && (other.extent(label) != 1 || own.extent(label) == 1);
    };
  };
  for (Label label : a.labels) {
    if (!has(b.labels, label)) continue;
    const std::int64_t u = a.extent(label), v = b.extent(label);
    check(u == v || u == 1 || v == 1, "einsum: \"{}\" has one axis of {} and {} elements", equation, u, v);
  }
  const Term before = a;
  sum_others(a, wanted(before, b));
  sum_others(b, wanted(b, before));
  Labels shared, contracted, left, right;
  for (Term* term : {&a, &b}) {
    const Term& other = term == &a ? b : a;
    for (Label label : Labels(term->labels)) {
      if (!has(other.labels, label)) {
        if (keeps(label)) {
          (term == &a ? left : right).push_back(label);
        } else {
          // The extent is 1: the axis of the other operand has been summed.
          term->x = squeeze(term->x, place_of(term->labels, label));
          term->labels.erase(term->labels.begin() + place_of(term->labels, label));
        }
      } else if (term == &a) {
        (keeps(label) ? shared : contracted).push_back(label);
      }
    }
  }
  // A shared axis of extent 1 is broadcast.
  for (Label label : shared) {
    const std::int64_t extent = std::max(a.extent(label), b.extent(label));
    for (Term* term : {&a, &b}) {
      if (term->extent(label) == extent) continue;
      Shape shape = term->x.shape();
      shape[place_of(term->labels, label)] = extent;
      term->x = expand(term->x, shape);
    }
  }
  const auto joined = [](std::initializer_list<Labels> parts) {
    Labels all;
    for (const Labels& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  const auto extents = [](const Term& term, const Labels& labels) {
    std::vector<std::int64_t> all;
    for (Label label : labels) all.push_back(term.extent(label));
    return all;
  };
  const bool one = shared.empty();
  // [shared, left, contracted] x [shared, contracted, right]
  Tensor u = in_order(a, joined({shared, left, contracted})), v = in_order(b, joined({shared, contracted, right}));
  const int first = one ? 0 : 1;
  if (!one) u = merged(u, 0, shared.size()), v = merged(v, 0, shared.size());
  u = merged(merged(u, first, left.size()), first + 1, contracted.size());
  v = merged(merged(v, first, contracted.size()), first + 1, right.size());
  // Without contracted axes, broadcasting computes the product.
  Tensor y = contracted.empty() ? u * v : matmul(u, v);
  y = taken_apart(y, first + 1, extents(b, right));
  y = taken_apart(y, first, extents(a, left));
  if (!one) y = taken_apart(y, 0, extents(a, shared));
  return {y, joined({shared, left, right})};
}

}  // namespace

Tensor einsum(std::string_view equation, std::span<const Tensor> operands) {
  std::string text(equation);
  std::erase(text, ' ');
  const std::size_t arrow = text.find("->");
  const std::string_view inputs = std::string_view(text).substr(0, arrow);
  const std::vector<std::string_view> parts = split_at(inputs, ',');
  check(!operands.empty() && parts.size() == operands.size(), "einsum: \"{}\" has {} operands, found {}", equation,
        parts.size(), operands.size());
  std::vector<Term> terms;
  int most_dots = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    check(operands[i].defined(), "einsum: operand {} is undefined", i);
    const int letters = static_cast<int>(std::ranges::count_if(parts[i], [](char c) { return c != '.'; }));
    const int dims = operands[i].shape().dim();
    const bool ellipsis = parts[i].find('.') != std::string_view::npos;
    check(ellipsis ? dims >= letters : dims == letters, "einsum: \"{}\" has {} letters for operand {}, {}", equation,
          letters, i, operands[i].shape());
    const int dots = ellipsis ? dims - letters : 0;
    most_dots = std::max(most_dots, dots);
    terms.push_back({operands[i], parse(equation, parts[i], dots)});
  }
  Labels result;
  if (arrow != std::string::npos) {
    result = parse(equation, std::string_view(text).substr(arrow + 2), most_dots);
  } else {
    for (int k = most_dots; k > 0; --k) result.push_back(kEllipsis + k);
    for (int c = 0; c < kEllipsis; ++c) {
      std::int64_t uses = 0;
      for (const Term& term : terms) uses += std::ranges::count(term.labels, c);
      if (uses == 1) result.push_back(c);
    }
  }
  for (Label label : result) {
    check(std::ranges::count(result, label) == 1, "einsum: \"{}\" names an axis of the result twice", equation);
    check(std::ranges::any_of(terms, [&](const Term& term) { return has(term.labels, label); }),
          "einsum: \"{}\" has a letter in the result that no operand has", equation);
  }
  for (Term& term : terms) take_diagonals(equation, term);
  Term all = terms[0];
  for (std::size_t i = 1; i < terms.size(); ++i) {
    all = product_of(equation, all, terms[i], [&](Label label) {
      return has(result, label) || std::any_of(terms.begin() + static_cast<std::ptrdiff_t>(i) + 1, terms.end(),
                                               [&](const Term& later) { return has(later.labels, label); });
    });
  }
  sum_others(all, [&](Label label) { return has(result, label); });
  return owned(in_order(all, result), operands[0]);
}

Tensor einsum(std::string_view equation, std::initializer_list<Tensor> operands) {
  return einsum(equation, std::span(operands.begin(), operands.size()));
}

}  // namespace lockstep
