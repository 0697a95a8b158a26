// Internal: writes what `lockstep bisect` reads of a run: hashes of the model's and the optimizer's state after each
// step and, for one step, hashes of what each operation writes.
//
// The variable LOCKSTEP_BISECT names a folder. Its file request.json says what to watch. Each Trainer of each rank
// writes JSON lines to a file there, such as rank-0.trainer-0.jsonl. The bits, the order, and the placement of the
// program's work do not change.
//
//   {}                                             {"step":1,"loss":["40135c29"],"state":{"fc.weight":"5f56…",…}}
//                                                  state: StateDigest::by_name()
//   {"trainer":0,"step":7}                         {"operation":[KEY…,output],"shape":[…],"dtype":"f32","hash":"…"}
//   {"trainer":0,"step":7,"value":[KEY…,output]}   the same, and {"value":"rank-0.trainer-0.bin","inputs":[…],…}
//   with "flip":{"step":7,"module":"0","operation":"conv2d backward weights","shard":1,"element":3}: flips the lowest
//   bit of the element's highest byte, in the first result that fits, and says so: {"flipped":1}
//
// A KEY is the direction, module or tensor, operation, occurrence, and shard. It does not depend on the layout.
#pragma once

#include <compare>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/autograd/tensor.h"
#include "lockstep/checkpoint/training_checkpoint.h"
#include "lockstep/nn/module.h"
#include "lockstep/ops/origin.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/train/log_writer.h"
#include "lockstep/train/step_observer.h"

namespace lockstep {

class StepWatch final : public StepObserver {
 public:
  // Null unless LOCKSTEP_BISECT is set. The optimizer must outlive it.
  static std::shared_ptr<StepWatch> from_environment(int rank, int ranks, int shards, const Recipe& recipe,
                                                     const Optimizer& optimizer);
  ~StepWatch() override;
  StepWatch(const StepWatch&) = delete;
  StepWatch& operator=(const StepWatch&) = delete;

  std::string label() const override { return "LOCKSTEP_BISECT"; }
  // A file that lacks steps would look as if those steps were equal.
  AfterFailure after_failure() const override { return AfterFailure::ends_training; }
  void start(const TrainingStart& start) override { module_ = start.module; }
  bool observes(std::int64_t step) const override;
  void begin(std::int64_t step) override;
  void batch(std::span<const Tensor> parts) override;
  void backward(const std::function<double()>& loss_scale) override;
  // Waits for the step.
  void updated(std::span<const Tensor> losses) override;
  void abandon() override;

 private:
  class Observer;
  struct Key {
    std::string direction, module, operation;
    int occurrence = 0;
    int shard = -1;
    auto operator<=>(const Key&) const = default;
  };
  struct Record {
    Key key;
    int output = 0;
    Array value;  // without its memory: shape and type
    Array digest;
    std::string hash = {};  // known already if not empty
    std::string device = {};
  };
  struct Flip {
    std::int64_t step;
    std::string module, operation;
    int shard;
    std::int64_t element;
  };
  struct Request {
    std::int64_t trainer = 0, step = 0;  // step 0: none
    std::optional<std::pair<Key, int>> value;
    std::optional<Flip> flip;
  };

  StepWatch(const std::filesystem::path& folder, int rank, int ranks, int shards, const Recipe& recipe,
            const Optimizer& optimizer);
  static Request read_request(const std::filesystem::path& folder);
  bool records() const { return step_ == request_.step; }
  bool wants(const Key& key) const { return request_.value && request_.value->first == key; }
  void record(const Key& key, int output, const Array& array, const std::string& hash = "");
  void write_records();

  const Optimizer& optimizer_;
  Module* module_ = nullptr;
  std::filesystem::path file_;  // without its extension
  Request request_;
  std::optional<LogWriter> log_;
  std::int64_t step_ = 0;
  std::unique_ptr<Observer> observer_;
  std::optional<ops::OriginScope> origin_;
  int batches_ = 0;
  std::vector<Record> records_;
  std::vector<Record> inputs_;  // of the requested operation
  Array value_;
};

}  // namespace lockstep
