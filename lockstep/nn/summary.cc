#include "lockstep/nn/summary.h"

#include <algorithm>
#include <array>
#include <map>

#include "lockstep/autograd/no_grad.h"
#include "lockstep/nn/output_observer.h"
#include "lockstep/runtime/device_state.h"

namespace lockstep {
namespace {

using Row = std::array<std::string, 5>;

// Restores the position of the random numbers at its end.
class RandomGuard {
 public:
  explicit RandomGuard(const Module& module)
      : random_(state_of(module.devices()[0], "summary").random()), position_(random_->position()) {}
  ~RandomGuard() { random_->set_position(position_); }
  RandomGuard(const RandomGuard&) = delete;
  RandomGuard& operator=(const RandomGuard&) = delete;

 private:
  std::shared_ptr<RandomState> random_;
  RandomState::Position position_;
};

// 11,175,818
std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, ",");
  return text;
}

std::int64_t bytes_of(const Parameter& p) {
  return p.shape().numel() * static_cast<std::int64_t>(item_size(p.dtype()));
}

// Parameters and buffers, each counted once.
class Counter {
 public:
  // Sets what a row says of a module's own parameters.
  void add(const Module& module, LayerSummary& row) {
    std::int64_t count = 0, trainable = 0, frozen = 0;
    bool known = true;
    for (const auto& [name, p] : module.named_parameters(false)) {
      if (!is_new(p)) continue;
      const std::int64_t n = p.shape().numel();
      known = known && p.shape_known();
      count += n;
      ++(p.trainable() ? trainable : frozen);
      (p.trainable() ? trainable_ : frozen_) += n;
      bytes_ += bytes_of(p);
    }
    for (const auto& [name, p] : module.named_buffers(false)) {
      if (is_new(p)) buffer_bytes_ += bytes_of(p);
    }
    known_ = known_ && known;
    if (known) row.parameters = count;
    row.state = frozen == 0 ? (trainable > 0 ? "trainable" : "") : trainable > 0 ? "frozen in part" : "frozen";
  }

  std::string totals() const {
    return fmt::format("{} parameters, {} trainable, {} frozen{}\n{} bytes of parameters, {} of buffers\n",
                       grouped(trainable_ + frozen_), grouped(trainable_), grouped(frozen_),
                       known_ ? "" : "; without those marked ?, whose shapes are not known", grouped(bytes_),
                       grouped(buffer_bytes_));
  }

 private:
  bool is_new(const Parameter& p) {
    if (std::ranges::find(seen_, p) != seen_.end()) return false;
    seen_.push_back(p);
    return true;
  }

  std::vector<Parameter> seen_;
  std::int64_t trainable_ = 0, frozen_ = 0, bytes_ = 0, buffer_bytes_ = 0;
  bool known_ = true;
};

std::string table(const std::vector<Row>& rows) {
  std::array<std::size_t, 5> widths{};
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text, rule;
  for (const Row& row : rows) {
    std::string line = fmt::format("{:<{}}  {:<{}}  {:<{}}  {:>{}}  {}", row[0], widths[0], row[1], widths[1], row[2],
                                   widths[2], row[3], widths[3], row[4]);
    line.resize(line.find_last_not_of(' ') + 1);
    if (rule.empty()) rule = std::string(widths[0] + widths[1] + widths[2] + widths[3] + widths[4] + 8, '-') + '\n';
    text += line + '\n' + (&row == &rows.front() ? rule : "");
  }
  return text + rule;
}

std::vector<LayerSummary> layers_of(Module& module, const std::function<void()>& call, Counter& counter) {
  std::map<const Module*, Shape> outputs;
  {
    const RandomGuard random(module);
    const NoGradGuard no_grad;
    const EvalGuard mode(module);
    const OutputObserver observer(
        [&](const Module& m, const Tensor& output) { outputs.insert_or_assign(&m, output.shape()); });
    call();
  }
  std::vector<LayerSummary> layers;
  for (const auto& [name, m] : module.named_modules()) {
    LayerSummary& layer = layers.emplace_back(LayerSummary{.name = name, .kind = m->kind()});
    if (const auto output = outputs.find(m); output != outputs.end()) layer.output = output->second;
    counter.add(*m, layer);
  }
  return layers;
}

}  // namespace

std::string summary(Module& module, const std::function<void()>& call) {
  Counter counter;
  std::vector<Row> rows{{"Layer", "Kind", "Output shape", "Parameters", ""}};
  for (LayerSummary& layer : layers_of(module, call, counter)) {
    rows.push_back({std::move(layer.name), std::move(layer.kind), layer.output ? layer.output->str() : "",
                    layer.parameters ? grouped(*layer.parameters) : "?", std::move(layer.state)});
  }
  return table(rows) + counter.totals();
}

std::vector<LayerSummary> summarize_layers(Module& module, const std::function<void()>& call) {
  Counter counter;
  return layers_of(module, call, counter);
}

std::string summary(Module& module, const Shape& input, DType dtype) {
  return summary(module, Tensor::host(input, dtype));
}

Tensor input_for(const Module& module, const Tensor& x) {
  return x.defined() && x.device().is_host() ? x.to(module.devices()[0]) : x;
}

}  // namespace lockstep
