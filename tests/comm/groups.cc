#include "groups.h"

#include <thread>

namespace lockstep::testing {

namespace {

std::vector<std::exception_ptr> run(std::vector<std::shared_ptr<ProcessGroup>>& groups,
                                    const std::function<void(ProcessGroup&)>& body) {
  std::vector<std::exception_ptr> errors(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < groups.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        body(*groups[r]);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

}  // namespace

void on_all_ranks(std::vector<std::shared_ptr<ProcessGroup>>& groups, const std::function<void(ProcessGroup&)>& body) {
  for (const auto& error : run(groups, body)) {
    if (error) std::rethrow_exception(error);
  }
}

std::vector<std::string> errors_on_all_ranks(std::vector<std::shared_ptr<ProcessGroup>>& groups,
                                             const std::function<void(ProcessGroup&)>& body) {
  std::vector<std::string> texts;
  for (const auto& error : run(groups, body)) {
    texts.emplace_back();
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& e) {
      texts.back() = e.what();
    }
  }
  return texts;
}

}  // namespace lockstep::testing
