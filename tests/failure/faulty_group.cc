#include "tests/failure/faulty_group.h"

#include <thread>
#include <utility>

#include "lockstep/comm/summing_device.h"

namespace lockstep::testing {
namespace {

class FaultyStore final : public Store {
 public:
  FaultyStore(std::shared_ptr<Store> store, FaultInjector& fault) : store_(std::move(store)), fault_(fault) {}

  void set(const std::string& key, std::string_view value) override { next().set(key, value); }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    return next().get(key, timeout);
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override { return next().add(key, amount); }
  bool contains(const std::string& key) override { return next().contains(key); }

 private:
  Store& next() {
    fault_.reach("rendezvous");
    return *store_;
  }

  std::shared_ptr<Store> store_;
  FaultInjector& fault_;
};

class FaultyReducer final : public TreeReducer {
 public:
  FaultyReducer(std::unique_ptr<TreeReducer> reducer, FaultInjector& fault)
      : reducer_(std::move(reducer)), fault_(fault) {}

  CommBuffer contribution(std::size_t k) override { return reducer_->contribution(k); }
  void set_present(std::size_t k, std::size_t segment, bool present) override {
    reducer_->set_present(k, segment, present);
  }
  void reduce(const CollectiveOptions& options) override {
    if (options.label.starts_with("bucket 1,")) {
      // Other operations in progress are finished by then.
      fault_.reach("reduce", [] { std::this_thread::sleep_for(std::chrono::milliseconds(400)); });
    }
    reducer_->reduce(options);
  }
  std::span<const float> result() const override { return reducer_->result(); }
  bool result_present(std::size_t segment) const override { return reducer_->result_present(segment); }

 private:
  std::unique_ptr<TreeReducer> reducer_;
  FaultInjector& fault_;
};

class FaultyGroup final : public ProcessGroup {
 public:
  FaultyGroup(std::shared_ptr<ProcessGroup> group, FaultInjector& fault) : group_(std::move(group)), fault_(fault) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  std::string_view backend() const override { return group_->backend(); }
  Work all_reduce(CommBuffer data, ReduceOp op, CollectiveOptions options) override {
    return group_->all_reduce(data, op, std::move(options));
  }
  Work broadcast(CommBuffer data, int root, CollectiveOptions options) override {
    if (options.label.ends_with(".weight")) fault_.reach("broadcast");
    return group_->broadcast(data, root, std::move(options));
  }
  Work all_gather(CommBuffer in, CommBuffer out, CollectiveOptions options) override {
    // A fault from outside strikes rank 0 while it writes.
    if (options.label == "checkpoint" && (rank() != 0 || fault_.strikes_in_place())) fault_.reach("checkpoint");
    return group_->all_gather(in, out, std::move(options));
  }
  Work send(CommBuffer data, int destination, int tag, CollectiveOptions options) override {
    return group_->send(data, destination, tag, std::move(options));
  }
  Work receive(CommBuffer data, int source, int tag, CollectiveOptions options) override {
    return group_->receive(data, source, tag, std::move(options));
  }
  Work barrier(CollectiveOptions options) override { return group_->barrier(std::move(options)); }
  std::unique_ptr<TreeReducer> make_tree_reducer(TreeLayout layout, CommChannel channel,
                                                 std::shared_ptr<SummingDevice> device) override {
    return std::make_unique<FaultyReducer>(group_->make_tree_reducer(std::move(layout), channel, std::move(device)),
                                           fault_);
  }
  std::shared_ptr<ProcessGroup> subgroup(std::vector<int> ranks) override {
    auto group = group_->subgroup(std::move(ranks));
    return group ? make_faulty_group(std::move(group), fault_) : nullptr;
  }
  void abort(const std::string& reason) override { group_->abort(reason); }

 private:
  std::shared_ptr<ProcessGroup> group_;
  FaultInjector& fault_;
};

}  // namespace

std::shared_ptr<Store> make_faulty_store(std::shared_ptr<Store> store, FaultInjector& fault) {
  return std::make_shared<FaultyStore>(std::move(store), fault);
}

std::shared_ptr<ProcessGroup> make_faulty_group(std::shared_ptr<ProcessGroup> group, FaultInjector& fault) {
  return std::make_shared<FaultyGroup>(std::move(group), fault);
}

}  // namespace lockstep::testing
