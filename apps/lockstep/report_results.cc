#include "report_results.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/shards.h"
#include "lockstep/base/random.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/data/head_dataset.h"
#include "lockstep/data/image.h"
#include "lockstep/parallel/split.h"
#include "lockstep/task/data_source.h"

namespace lockstep::app {
namespace {

constexpr std::int64_t kMostExamples = 10'000;
constexpr std::size_t kMostWorst = 24, kMostWideWorst = 12, kMostDots = 1500, kMostOutputs = 4;

// -log softmax(logits)[label]
double cross_entropy_of(std::span<const float> logits, std::size_t label) {
  const auto largest = static_cast<double>(*std::ranges::max_element(logits));
  double sum = 0;
  for (const float v : logits) sum += std::exp(static_cast<double>(v) - largest);
  return std::log(sum) + largest - static_cast<double>(logits[label]);
}

std::size_t best_of(std::span<const float> logits) {
  return static_cast<std::size_t>(std::ranges::max_element(logits) - logits.begin());
}

// An example's pixels as u8 [channels, height, width], as they were before they became the model's input. Values
// outside of what pictures have are stretched from the least to the largest.
Tensor pixels_of(const Tensor& x, const DataSource* own) {
  const std::int64_t channels = x.size(0) == 3 ? 3 : 1, area = x.size(1) * x.size(2);
  std::vector<double> values(static_cast<std::size_t>(channels * area));
  const std::vector<float> given = x.to_vector<float>();
  const std::vector<double>*mean = nullptr, *stddev = nullptr;
  if (own && own->schema.image) mean = &own->schema.image->mean, stddev = &own->schema.image->stddev;
  if (own && own->schema.array) mean = &own->schema.array->mean, stddev = &own->schema.array->stddev;
  double low = 0, high = 1;
  const auto finite = [](double v) { return std::isfinite(v) ? v : 0; };
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t c = i / static_cast<std::size_t>(area);
    const bool normalized = mean && stddev && c < mean->size() && c < stddev->size();
    values[i] = finite(static_cast<double>(given[i]) * (normalized ? (*stddev)[c] : 1) + (normalized ? (*mean)[c] : 0));
    low = std::min(low, values[i]);
    high = std::max(high, values[i]);
  }
  constexpr double kRounding = 0.01;
  if (low > -kRounding && high < 1 + kRounding) low = 0, high = 1;
  std::vector<std::uint8_t> bytes(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(std::clamp(std::round(255 * (values[i] - low) / (high - low)), 0.0, 255.0));
  }
  return Tensor::from(bytes, {channels, x.size(1), x.size(2)});
}

// The cells of an encoded row.
Texts inputs_of(const Tensor& x, const TableSchema& table) {
  const std::vector<float> row = x.to_vector<float>();
  Texts inputs;
  std::size_t number = 0, category = static_cast<std::size_t>(table.number_features());
  for (const TableColumn& column : table.columns) {
    if (column.kind == TableColumn::Kind::category) {
      const auto at = static_cast<std::size_t>(row.at(category++));
      const bool known = at > 0 && at <= column.categories.size();
      inputs.emplace_back(column.name, known ? column.categories[at - 1] : "missing");
      continue;
    }
    const double value = static_cast<double>(row.at(number++)) * (column.stddev == 0 ? 1 : column.stddev) + column.mean;
    const bool missing = column.missing && row.at(number++) != 0;
    inputs.emplace_back(column.name, missing ? "missing" : fmt::format("{:.5g}", value));
  }
  return inputs;
}

class Examination {
 public:
  Examination(const Examples& test, const CommonOptions& o) : test_(test), o_(o) {
    const auto classes = static_cast<std::size_t>(test.classes);
    results_.of = test.data->size();
    results_.classes = test.class_names;
    if (!o.is_regression()) results_.confusion.assign(classes, std::vector<double>(classes));
    if (!o.is_regression()) return;
    const DataSchema& schema = o.own->schema;
    for (std::size_t k = 0; k < std::min(kMostOutputs, static_cast<std::size_t>(schema.outputs)); ++k) {
      results_.scatters.push_back(
          {.name = schema.table && schema.outputs == 1 ? schema.table->target : fmt::format("output {}", k)});
    }
  }

  void add(const Tensor& outputs, const Tensor& targets) {
    const auto examples = static_cast<std::size_t>(targets.size(0));
    const std::vector<float> values = outputs.to(DType::f32).to_vector<float>();
    const std::size_t each = values.size() / examples;
    const auto labels = o_.is_regression() ? std::vector<std::int64_t>() : targets.to_vector<std::int64_t>();
    const auto numbers = o_.is_regression() ? targets.to_vector<float>() : std::vector<float>();
    for (std::size_t i = 0; i < examples; ++i) {
      const std::span<const float> mine(values.data() + i * each, each);
      if (o_.is_regression()) {
        add_numbers(mine, std::span(numbers).subspan(i * each, each));
      } else {
        const std::size_t positions = labels.size() / examples;
        add_labels(mine, std::span(labels).subspan(i * positions, positions));
      }
      ++results_.examples;
    }
  }

  PageResults finish() {
    std::vector<std::size_t> order(found_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::greater{}, [&](std::size_t i) {
      return std::isnan(found_[i].loss) ? HUGE_VAL : found_[i].loss;  // NaN has no order, and is the worst
    });
    order.resize(std::min(order.size(),
                          o_.is_language_model() || (o_.own && o_.own->schema.table) ? kMostWideWorst : kMostWorst));
    for (const std::size_t i : order) describe(i);
    for (PageResults::Scatter& s : results_.scatters) {
      const std::size_t stride = (s.points.size() + kMostDots - 1) / kMostDots;
      if (stride <= 1) continue;
      std::vector<CurvePoint> some;
      for (std::size_t i = 0; i < s.points.size(); i += stride) some.push_back(s.points[i]);
      s.points = std::move(some);
    }
    return std::move(results_);
  }

 private:
  struct Found {
    double loss = 0;
    std::string truth, predicted;
    double probability = 0;
    std::vector<float> losses{};  // of the characters of a text
  };

  std::string class_name(std::size_t c) const {
    return c < results_.classes.size() ? results_.classes[c] : fmt::format("{}", c);
  }

  void add_labels(std::span<const float> logits, std::span<const std::int64_t> labels) {
    Found found;
    const std::size_t classes = results_.confusion.size();
    double counted = 0;
    for (std::size_t t = 0; t < labels.size(); ++t) {
      const auto here = logits.subspan(t * classes, classes);
      if (labels[t] < 0 || labels[t] >= static_cast<std::int64_t>(classes)) continue;  // kIgnoredLabel
      const auto label = static_cast<std::size_t>(labels[t]);
      const std::size_t said = best_of(here);
      ++results_.confusion[label][said];
      const double loss = cross_entropy_of(here, label);
      found.loss += loss;
      ++counted;
      if (o_.is_language_model()) {
        found.losses.push_back(static_cast<float>(loss));
      } else {
        found.truth = class_name(label);
        if (said != label) found.predicted = class_name(said);
        found.probability = std::exp(-cross_entropy_of(here, said));
      }
    }
    if (counted > 0) found.loss /= counted;
    found_.push_back(std::move(found));
  }

  void add_numbers(std::span<const float> values, std::span<const float> targets) {
    const DataSchema& schema = o_.own->schema;
    Found found;
    for (std::size_t k = 0; k < values.size(); ++k) {
      const auto in_units = [&](float v) {
        return static_cast<double>(v) * schema.target_stddev.at(k) + schema.target_mean.at(k);
      };
      const double target = in_units(targets[k]), value = in_units(values[k]);
      found.loss += std::abs(value - target);
      if (k >= kMostOutputs) continue;
      results_.scatters[k].points.push_back({target, value});
      found.truth += fmt::format("{}{:.5g}", k == 0 ? "" : ", ", target);
      found.predicted += fmt::format("{}{:.5g}", k == 0 ? "" : ", ", value);
    }
    found_.push_back(std::move(found));
  }

  // A file, or the number that `eval` gives it.
  std::string name_of(std::size_t i) const {
    const std::string name = test_.name ? test_.name(static_cast<std::int64_t>(i)) : std::to_string(i + 1);
    return name.find_first_not_of("0123456789") == std::string::npos ? "example " + name : name;
  }

  void describe(std::size_t i) {
    constexpr std::int64_t kSmallPicture = 96;
    Found& found = found_[i];
    PageResults::Example& e = results_.worst.emplace_back(PageResults::Example{.name = name_of(i),
                                                                               .loss = found.loss,
                                                                               .truth = std::move(found.truth),
                                                                               .predicted = std::move(found.predicted),
                                                                               .probability = found.probability});
    const Example example = test_.data->get(static_cast<std::int64_t>(i));
    const Tensor& x = example.at(0);
    if (o_.is_language_model()) {
      const std::vector<std::int64_t> next = example.at(1).to_vector<std::int64_t>();
      for (std::size_t t = 0; t < found.losses.size() && t < next.size(); ++t) {
        e.characters.emplace_back(shown_character(static_cast<std::size_t>(next[t])),
                                  static_cast<double>(found.losses[t]));
      }
      return;
    }
    if (o_.own && o_.own->schema.table) {
      e.inputs = inputs_of(x, *o_.own->schema.table);
      return;
    }
    if (x.shape().dim() != 3) return;
    const Tensor pixels = pixels_of(x, o_.own.get());
    e.small_picture = std::max(x.size(1), x.size(2)) <= kSmallPicture;
    e.picture = e.small_picture ? data_uri("image/png", encode_png(pixels))
                                : data_uri("image/jpeg", encode_jpeg(pixels, {.quality = 80}));
  }

  // Texts name their classes as JSON does: "a", "\n".
  std::string shown_character(std::size_t c) const {
    const std::string name = class_name(c);
    if (name == "\"\\n\"") return "\n";
    return name.size() == 3 ? name.substr(1, 1) : name == "\"\\\"\"" ? "\"" : "?";
  }

  const Examples& test_;
  const CommonOptions& o_;
  PageResults results_;
  std::vector<Found> found_;
};

}  // namespace

PageResults examine(Module& net, const Examples& test, const CommonOptions& o, const ToolJob& job,
                    std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  const NoGradGuard no_grad;
  const EvalGuard mode(net);
  Examination examination(test, o);
  DataLoader loader(std::make_shared<HeadDataset>(test.data, kMostExamples),
                    {.batch_size = std::min<std::int64_t>(o.batch_size, 256)});
  for (const Example& batch : loader) {
    if (std::chrono::steady_clock::now() > end) break;
    const Tensor x = split_and_load(batch.at(0), job.devices());
    const Tensor outputs = per_shard(
        [&](const Tensor& shard) { return net.forward(is_floating(shard.dtype()) ? shard.to(job.dtype) : shard); }, x);
    examination.add(gather(outputs, kHost), batch.at(1));
  }
  return examination.finish();
}

}  // namespace lockstep::app
