// What programs for libtorch write, and Lockstep does not have: the compiler names the form that it has. A test
// compiles this file, and expects each text behind "says:" among the errors.
#include "lockstep/lockstep.h"

using namespace lockstep;

struct Net : Module {
  Linear& fc = make<Linear>("fc", 4, 2);
  Net() {
    // says: write Linear& fc = make<Linear>("fc", 784, 256)
    register_module("fc", Linear(4, 2));
    // says: write Parameter w = add_parameter("w"
    register_parameter("w", randn({2, 3}));
    // says: write Parameter b = add_buffer("b"
    register_buffer("b", zeros({2, 3}));
  }
  Tensor forward(const Tensor& x) override { return fc(x); }
};

void program(Net& net, DataLoader& loader, Dataset& data, Tensor& x) {
  const std::vector<Parameter> p = net.parameters();
  // says: a module is a value: write net(x), which calls forward()
  net->forward(x);
  Tensor loss = x.sum();
  // says: a Tensor is a value: write loss.backward(), with a point
  loss->backward();
  // says: expected a learning rate: Sgd(net.parameters(), {.lr = 0.1})
  Sgd sgd(p);
  // says: a schedule is the optimizer's rate: Sgd sgd(net.parameters(), {.lr =
  StepLR schedule(sgd, 30, 0.1);
  // says: write optimizer.clip_grad_norm(max_norm)
  clip_grad_norm_(p, 1.0);
  // says: write optimizer.clip_grad_value(limit)
  clip_grad_value_(p, 1.0);
  // says: write save_weights(path, net)
  save(net, "net.pt");
  // says: write load_weights(path, net)
  load(net, "net.pt");
  // says: write write_safetensors(path, as_bytes({{name, tensor}}))
  save(x, "x.pt");
  // says: write write_safetensors(path, as_bytes(optimizer.state_dict()))
  save(sgd, "sgd.pt");
  // says: write optimizer.load_state_dict(as_tensors(read_safetensors(path)))
  load(sgd, "sgd.pt");
  // says: write DataLoader loader(data, {.batch_size = 64, .shuffle = true})
  auto batches = make_data_loader(data, 64);
  // says: let an optimizer update parameters
  p[0] -= 0.1 * p[0].grad();
  // says: name the loader, which the loop needs
  for (auto [a, b] : DataLoader(TensorDataset({x, x}), {}).on(net)) {
  }
  // says: a Trainer takes data sets, and makes its loaders
  Trainer trainer(net, sgd, loader, loader);
  // says: has no non-static data member named 'learning_rate'
  Sgd wrong(p, SgdOptions{.learning_rate = 0.1});
}
