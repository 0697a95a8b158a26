#include "lockstep/report/page_results.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/base/random.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/data/formats/image.h"
#include "lockstep/data/head_dataset.h"
#include "lockstep/task/data_source.h"
#include "lockstep/task/outcomes.h"
#include "lockstep/train/evaluate.h"
#include "lockstep/train/plot_axis.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostExamples = 10'000;
constexpr std::size_t kMostWorst = 24, kMostWideWorst = 12, kMostDots = 1500,
                      kMostClasses = 2000;  // of the confusion matrix, which has 32 MB then

bool is_of_bytes(const DataSchema& schema) {
  return schema.image || (schema.array && schema.array->type == ElementType::u8);
}

// Returns an example's pixels as u8 [channels, height, width], without the model's normalization. Pictures of bytes get
// their bytes back. Of others, 0 to 1 becomes 0 to 255; if some are outside, the range from the least to the largest.
Tensor pixels_of(const Tensor& x, const DataSchema& schema) {
  const std::int64_t channels = x.size(0) == 3 ? 3 : 1, area = x.size(1) * x.size(2);
  std::vector<double> values(static_cast<std::size_t>(channels * area));
  const std::vector<float> given = x.to_vector<float>();
  const InputScale scale = schema.input_scale();
  double low = 0, high = 1;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = scale.value_of(given[i], i / static_cast<std::size_t>(area));
    values[i] = std::isfinite(value) ? value : 0;
    low = std::min(low, values[i]);
    high = std::max(high, values[i]);
  }
  constexpr double kRounding = 0.01;
  if (is_of_bytes(schema)) {
    low = 0, high = 255;
  } else if (low > -kRounding && high < 1 + kRounding) {
    low = 0, high = 1;
  }
  std::vector<std::uint8_t> bytes(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(std::clamp(std::round(255 * (values[i] - low) / (high - low)), 0.0, 255.0));
  }
  return Tensor::from(bytes, {channels, x.size(1), x.size(2)});
}

// Returns the cells of an encoded row by the names of their columns.
PageTexts inputs_of(const Tensor& x, const TableSchema& table) {
  const std::vector<float> row = x.to_vector<float>();
  PageTexts inputs;
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
    inputs.emplace_back(column.name, missing ? "missing" : plain_number(value, 5));
  }
  return inputs;
}

// "20.5, 3"
std::string numbers_text(const std::vector<double>& numbers) {
  std::string text;
  for (const double number : numbers) text += (text.empty() ? "" : ", ") + plain_number(number, 5);
  return text;
}

class Examination {
 public:
  explicit Examination(const DataSource& data)
      : data_(data), schema_(data.schema), outcomes_(outcomes_of(schema_, kMostClasses)) {
    results_.of = data.validation->size();
    results_.classes = class_names(schema_);
  }

  Outcomes& outcomes() { return outcomes_; }

  PageResults finish() {
    const std::vector<ExampleOutcome>& found = outcomes_.examples;
    results_.examples = std::ssize(found);
    results_.confusion = outcomes_.confusion;
    add_scatters();
    std::vector<std::size_t> order(found.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::greater{}, [&](std::size_t i) {
      return std::isnan(found[i].loss) ? HUGE_VAL : found[i].loss;  // NaN has no order, and is the worst
    });
    order.resize(std::min(order.size(), is_text() || schema_.table ? kMostWideWorst : kMostWorst));
    for (const std::size_t i : order) describe(i);
    return std::move(results_);
  }

 private:
  bool is_regression() const { return schema_.task == TaskKind::regression; }
  bool is_text() const { return schema_.task == TaskKind::language; }
  std::string class_name(std::int64_t c) const {
    return c >= 0 && c < std::ssize(results_.classes) ? results_.classes[static_cast<std::size_t>(c)]
                                                      : fmt::format("{}", c);
  }

  void add_scatters() {
    if (!is_regression()) return;
    const std::size_t stride = (outcomes_.examples.size() + kMostDots - 1) / kMostDots;
    for (std::size_t k = 0; k < std::min(Outcomes::kMostNumbers, static_cast<std::size_t>(schema_.outputs)); ++k) {
      auto& scatter = results_.scatters.emplace_back(PageResults::Scatter{
          .name = schema_.table && schema_.outputs == 1 ? schema_.table->target : fmt::format("output {}", k)});
      for (std::size_t i = 0; i < outcomes_.examples.size(); i += stride) {
        scatter.points.push_back({outcomes_.examples[i].targets[k], outcomes_.examples[i].values[k]});
      }
    }
  }

  // Returns the name of an example: a file, or the number that `lockstep eval` gives it.
  std::string name_of(std::size_t i) const {
    const std::string name =
        data_.validation_name ? data_.validation_name(static_cast<std::int64_t>(i)) : std::to_string(i + 1);
    return name.find_first_not_of("0123456789") == std::string::npos ? "example " + name : name;
  }

  void describe(std::size_t i) {
    constexpr std::int64_t kSmallPicture = 96;
    const ExampleOutcome& found = outcomes_.examples[i];
    PageResults::Example& e = results_.worst.emplace_back(
        PageResults::Example{.name = name_of(i), .loss = found.loss, .probability = found.probability});
    if (is_regression()) {
      e.truth = numbers_text(found.targets);
      e.predicted = numbers_text(found.values);
    } else if (!is_text() && found.labeled) {
      e.truth = class_name(found.truth);
      if (found.said != found.truth) e.predicted = class_name(found.said);
    }
    const Example example = data_.validation->get(static_cast<std::int64_t>(i));
    const Tensor& x = example.at(0);
    if (is_text()) {
      const std::vector<std::int64_t> next = example.at(1).to_vector<std::int64_t>();
      for (std::size_t t = 0; t < found.losses.size() && t < next.size(); ++t) {
        e.characters.emplace_back(shown_character(next[t]), static_cast<double>(found.losses[t]));
      }
      return;
    }
    if (schema_.table) {
      e.inputs = inputs_of(x, *schema_.table);
      return;
    }
    if (x.shape().dim() != 3) return;
    const Tensor pixels = pixels_of(x, schema_);
    e.small_picture = std::max(x.size(1), x.size(2)) <= kSmallPicture;
    e.picture = e.small_picture ? data_uri("image/png", encode_png(pixels))
                                : data_uri("image/jpeg", encode_jpeg(pixels, {.quality = 80}));
  }

  // Class names of texts are characters as in JSON: "a", "\n".
  std::string shown_character(std::int64_t c) const {
    const std::string name = class_name(c);
    if (name == "\"\\n\"") return "\n";
    return name.size() == 3 ? name.substr(1, 1) : name == "\"\\\"\"" ? "\"" : "?";
  }

  const DataSource& data_;
  const DataSchema& schema_;
  PageResults results_;
  Outcomes outcomes_;
};

}  // namespace

PageResults examine(Module& net, const DataSource& data, const TrainerOptions& training,
                    std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  const EvalGuard mode(net);
  Examination examination(data);
  DataLoader loader(std::make_shared<HeadDataset>(data.validation, kMostExamples),
                    {.batch_size = std::min<std::int64_t>(training.batch_size, 256)});
  // As the tests of the training do.
  const EvaluateOptions options{.devices = training.devices,
                                .dtype = training.forward ? DType::f32 : training.dtype,
                                .forward = training.forward};
  examination.outcomes().add_all(
      loader, [&](const Example& batch) { return evaluate_batch(net, batch, options); },
      [&] { return std::chrono::steady_clock::now() <= end; });
  return examination.finish();
}

}  // namespace lockstep
