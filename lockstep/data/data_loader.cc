#include "lockstep/data/data_loader.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "lockstep/base/interruption.h"
#include "lockstep/runtime/living_runtimes.h"

namespace lockstep {

// The batches of one loop, in order.
class DataLoader::Prefetcher {
 public:
  Prefetcher(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options, std::vector<std::int64_t> order,
             std::int64_t epoch, std::int64_t first, std::int64_t count)
      : dataset_(std::move(dataset)), options_(options), order_(std::move(order)), epoch_(epoch), first_(first),
        next_made_(first), next_used_(first), count_(count) {
    workers_.reserve(static_cast<std::size_t>(options.workers));
    try {
      for (int i = 0; i < options.workers; ++i) workers_.emplace_back([this] { work(); });
    } catch (const std::exception& error) {
      // The destructor, which joins the threads, does not run if the constructor throws.
      const std::size_t made = workers_.size();
      stop();
      fail("data loader: cannot make thread {} of {}: {}", made + 1, options.workers, error.what());
    }
  }

  ~Prefetcher() { stop(); }

  // Number of examples in the batch that was used last.
  std::int64_t examples() const {
    const auto n = static_cast<std::int64_t>(order_.size());
    return std::clamp<std::int64_t>(n - (next_used_ - 1) * options_.batch_size, 0, options_.batch_size);
  }

  std::uint64_t fingerprint() const {
    const auto order = std::as_bytes(std::span(order_));
    return hash_name(fmt::format("{} {} {} {} {} {}", options_.batch_size, count_, first_, *options_.seed, epoch_,
                                 hash_name({reinterpret_cast<const char*>(order.data()), order.size()})));
  }

  // Returns false at the end.
  bool next(Example& batch) {
    if (next_used_ >= count_) return false;
    check_interruption();
    if (workers_.empty()) {
      batch = make(next_used_++);
      return true;
    }
    std::unique_lock lock(mutex_);
    const auto made = [&] { return results_.contains(next_used_); };
    if (can_be_interrupted()) {
      while (!made_.wait_for(lock, std::chrono::milliseconds(50), made)) {
        lock.unlock();
        check_interruption();
        lock.lock();
      }
    } else {
      made_.wait(lock, made);
    }
    Result result = std::move(results_.extract(next_used_).mapped());
    ++next_used_;
    lock.unlock();
    room_.notify_one();
    if (result.error) std::rethrow_exception(result.error);
    batch = std::move(result.batch);
    return true;
  }

 private:
  struct Result {
    Example batch;
    std::exception_ptr error;
  };

  Example make(std::int64_t number) const {
    const std::size_t first = std::min(static_cast<std::size_t>(number * options_.batch_size), order_.size());
    const std::size_t last = std::min(first + static_cast<std::size_t>(options_.batch_size), order_.size());
    std::span<const std::int64_t> indices(order_.data() + first, last - first);
    std::pair<std::int64_t, std::int64_t> kept{0, static_cast<std::int64_t>(indices.size())};
    if (options_.rows) {
      auto n = static_cast<std::int64_t>(indices.size());
      auto [begin, end] = options_.rows(n);
      check(begin >= 0 && begin <= end && end <= n,
            "data loader: rows [{}, {}) of a batch of {} examples, expected a range within it", begin, end, n);
      kept = {begin, end};
      if (!needs_all()) {
        indices = indices.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
      }
    }
    // A batch without rows gets its shape from example 0.
    const bool none = indices.empty();
    const std::int64_t any = 0;
    if (none) indices = {&any, 1};
    std::vector<RandomKey> keys;
    for (std::int64_t index : indices) {
      keys.push_back(random_key(*options_.seed, {hash_name("transform"), static_cast<std::uint64_t>(epoch_),
                                                 static_cast<std::uint64_t>(index)}));
    }
    const KeyedScope scope("Dataset::get");
    Example batch = options_.collate ? collated(indices, keys) : dataset_->batch(indices, keys);
    if (options_.batch_transform) {
      batch = options_.batch_transform(
          batch, random_key(*options_.seed, {hash_name("batch transform"), static_cast<std::uint64_t>(epoch_),
                                             static_cast<std::uint64_t>(number)}));
      check_rows("batch_transform", batch, std::ssize(indices));
    }
    if (none) {
      for (Tensor& part : batch) part = part.narrow(0, 0, 0);
    } else if (needs_all() && kept.second - kept.first < std::ssize(indices)) {
      for (Tensor& part : batch) part = part.narrow(0, kept.first, kept.second - kept.first);
    }
    if (!options_.pin_for.is_host()) {
      for (Tensor& part : batch) part = part.pin(options_.pin_for);
    }
    return batch;
  }

  Example collated(std::span<const std::int64_t> indices, std::span<const RandomKey> keys) const {
    std::vector<Example> examples;
    for (std::size_t i = 0; i < indices.size(); ++i) examples.push_back(dataset_->get(indices[i], keys[i]));
    Example batch = options_.collate(examples);
    check_rows("collate", batch, std::ssize(indices));
    return batch;
  }

  // Whether a batch is made from all of its examples even if this process keeps only some of its rows.
  bool needs_all() const { return options_.collate || options_.batch_transform; }

  static void check_rows(const char* option, const Example& batch, std::int64_t examples) {
    for (std::size_t k = 0; k < batch.size(); ++k) {
      const Tensor& part = batch[k];
      check(part.defined() && part.device().is_host() && part.shape().dim() >= 1 && part.size(0) == examples,
            "data loader: {} returned {} as part {} of {} examples, expected host memory with one row for each", option,
            part, k, examples);
    }
  }

  void stop() {
    {
      std::scoped_lock lock(mutex_);
      stop_ = true;
    }
    room_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      room_.wait(lock, [&] { return stop_ || next_made_ >= count_ || next_made_ < next_used_ + options_.prefetch; });
      if (stop_ || next_made_ >= count_) return;
      std::int64_t number = next_made_++;
      lock.unlock();
      Result result;
      try {
        result.batch = make(number);
      } catch (...) {
        result.error = std::current_exception();
      }
      lock.lock();
      results_.emplace(number, std::move(result));
      made_.notify_all();
    }
  }

  std::shared_ptr<const Dataset> dataset_;
  DataLoaderOptions options_;
  std::vector<std::int64_t> order_;
  std::int64_t epoch_;

  std::mutex mutex_;
  std::condition_variable made_, room_;
  std::map<std::int64_t, Result> results_;
  std::int64_t first_, next_made_, next_used_, count_;
  bool stop_ = false;
  std::vector<std::thread> workers_;
};

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, DataLoaderOptions options)
    : dataset_(std::move(dataset)), options_(std::move(options)) {
  const auto& o = options_;
  check(dataset_ != nullptr, "data loader: no data set");
  check(o.batch_size >= 1, "data loader: batch size {}, expected at least 1", o.batch_size);
  check(o.workers >= 0 && o.workers <= 256 && o.prefetch >= 1,
        "data loader: {} workers, {} batches ahead, expected 0 to 256 and at least 1", o.workers, o.prefetch);
  check(o.workers > 0 || o.prefetch == DataLoaderOptions().prefetch,
        "data loader: prefetch is {} without workers, expected at least one, or {}", o.prefetch,
        DataLoaderOptions().prefetch);
  check(!o.shuffle || !o.sampler, "data loader: shuffle and sampler are both set, expected at most one of them");
  if (!options_.sampler) {
    if (o.shuffle) {
      options_.sampler = std::make_shared<RandomSampler>(dataset_->size(), o.seed);
    } else {
      options_.sampler = std::make_shared<SequentialSampler>(dataset_->size());
    }
  }
}

void DataLoader::skip_batches(std::int64_t count) {
  check(count >= 0, "data loader: {} batches to skip, expected at least 0", count);
  skip_ = count;
  begun_ = false;
}

void DataLoader::set_epoch(std::int64_t epoch) {
  check(epoch >= 0, "data loader: epoch {}, expected at least 0", epoch);
  epoch_ = epoch;
  begun_ = false;
}

std::int64_t DataLoader::examples() const {
  if (known_examples_.first != epoch_) {
    known_examples_ = {epoch_, static_cast<std::int64_t>(options_.sampler->order_for(options_.seed, epoch_).size())};
  }
  return known_examples_.second;
}

std::int64_t DataLoader::batches_of(std::int64_t examples) const {
  const auto ranks = options_.sampler->rank_sizes().value_or(Sampler::RankSizes{examples, examples});
  return options_.drop_last ? ranks.least / options_.batch_size
                            : (ranks.most + options_.batch_size - 1) / options_.batch_size;
}

std::int64_t DataLoader::size() const { return batches_of(examples()); }

std::int64_t DataLoader::batch_examples(std::int64_t number) const {
  return std::clamp<std::int64_t>(examples() - number * options_.batch_size, 0, options_.batch_size);
}

DataLoader::Iterator DataLoader::begin() { return begin(options_.rows); }

DataLoader::Iterator DataLoader::begin(RowsOfBatch rows) { return begin(std::move(rows), options_.pin_for); }

DataLoader::Iterator DataLoader::begin_for(Device device) { return begin(options_.rows, device); }

DataLoader::Iterator DataLoader::begin(RowsOfBatch rows, Device pin_for) {
  DataLoaderOptions options = options_;
  if (options.pin_for.is_host()) options.pin_for = pin_for;
  options.rows = std::move(rows);
  if (!options.seed) options.seed = default_seed("data loader");
  if (begun_) ++epoch_;
  begun_ = true;
  std::vector<std::int64_t> order = options_.sampler->order_for(options_.seed, epoch_);
  auto n = static_cast<std::int64_t>(order.size());
  known_examples_ = {epoch_, n};
  std::int64_t first = std::exchange(skip_, 0);
  return Iterator(this,
                  std::make_shared<Prefetcher>(dataset_, options, std::move(order), epoch_, first, batches_of(n)));
}

std::int64_t DataLoader::Iterator::examples() const { return prefetcher_->examples(); }
std::uint64_t DataLoader::Iterator::fingerprint() const { return prefetcher_->fingerprint(); }

DataLoader::Iterator::Iterator(DataLoader* loader, std::shared_ptr<Prefetcher> prefetcher)
    : loader_(loader), epoch_(loader->epoch_), prefetcher_(std::move(prefetcher)) {
  ++*this;
}

DataLoader::Iterator& DataLoader::Iterator::operator++() {
  if (!prefetcher_->next(current_)) {
    done_ = true;
    current_.clear();
    // If another loop has begun meanwhile, epoch_ belongs to that loop.
    if (loader_->begun_ && loader_->epoch_ == epoch_) loader_->set_epoch(epoch_ + 1);
  }
  return *this;
}

}  // namespace lockstep
