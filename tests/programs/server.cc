// A server: many threads ask one model.
#include <lockstep/lockstep.h>

#include <thread>

#include "programs.h"

using namespace lockstep;

// program begins
class Server {
 public:
  explicit Server(const std::filesystem::path& weights) : predict_(lenet(), weights) {}
  std::vector<float> scores(const std::vector<float>& pixels) const {  // from any thread
    return softmax(predict_(Tensor::from(pixels, {1, 1, 28, 28})), 1).to_vector<float>();
  }

 private:
  Predictor<Sequential> predict_;
};
// program ends

void programs::server(const std::filesystem::path& folder) {
  auto net = lenet();
  (*net)(rand({1, 1, 28, 28}, {.seed = 1}));
  save_weights(folder / "lenet.safetensors", *net);
  const Server server(folder / "lenet.safetensors");
  const std::vector<float> expected = server.scores(std::vector<float>(28 * 28, 0.5F));
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) wrong[t] += server.scores(std::vector<float>(28 * 28, 0.5F)) != expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  check(std::ranges::count(wrong, 0) == 4, "a thread got other scores");
}
