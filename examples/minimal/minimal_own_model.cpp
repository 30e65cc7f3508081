// SPDX-License-Identifier: Apache-2.0
// A model of one's own, its gradients checked, trained under two recipes: the next byte from the last one,
// through one hidden layer. A model lists its units and says what each computes; policies never touch it. Run
// it as minimal_own_model [PATH].
#include <cstdint>
#include <exception>
#include <iostream>
#include <vector>

#include <tessera/tessera.hpp>
#include <tessera/testing/gradients.hpp>

namespace ts = tessera;

class Bigram {
 public:
  std::int64_t vocabulary() const { return 256; }
  std::int64_t positions() const { return 1 << 20; }  // it looks at one token at a time

  std::vector<ts::UnitSpec> units(ts::MicroBatch shape) const {
    std::int64_t const b = shape.batch, t = shape.sequence, v = 256, c = 32, h = 64;
    ts::UnitSpec table;
    table.name = "table";
    table.parameters = {{"table.weight", {v, c}, ts::Init::normal(0.1), true}};
    table.output = {b, t, c};
    table.backward = {{"sums", {v, c}, /*statistic=*/true}};
    table.input_gradient = table.backward_reads_weights = table.recomputable = false;

    ts::UnitSpec head;
    head.name = "head";
    head.parameters = {{"fc.weight", {c, h}, ts::Init::normal(0.1), true},
                       {"fc.bias", {h}},
                       {"out.weight", {h, v}, ts::Init::normal(0.1), true},
                       {"out.bias", {v}}};
    head.saved = {{"pre", {b * t, h}}, {"hidden", {b * t, h}}, {"logits", {b * t, v}}};
    head.backward = {{"d_pre", {b * t, h}}};
    head.recomputable = false;
    return {table, head};
  }

  template <class Place, class T>
  void forward(int unit, ts::Pass<Place, T>& pass) const {
    if (unit == 0)
      return ts::ops::embedding_forward(pass.context(), pass.tokens, pass.weight(0), {}, pass.output);
    ts::ops::linear_gelu_forward(pass.context(), rows(pass.input), pass.weight(0), pass.weight(1),
                                 pass.saved(0),
                                 pass.saved(1));  // (BT,H)
    ts::ops::linear_forward(pass.context(), pass.saved(1), pass.weight(2), pass.weight(3),
                            pass.saved(2));  // (BT,V)
    ts::ops::cross_entropy(pass.context(), pass.saved(2),
                           pass.targets.reshaped({pass.targets.shape().elements()}), pass.losses,
                           pass.training, pass.gradient_scale);  // logits become their gradient
  }
  template <class Place, class T>
  void recompute(int, ts::Pass<Place, T>&) const {}
  template <class Place, class T>
  void backward_input(int unit, ts::Pass<Place, T>& pass) const {
    if (unit == 0) return;
    ts::ops::linear_gelu_backward_input(pass.context(), pass.saved(2), pass.weight(2), pass.saved(0),
                                        pass.backward(0));
    ts::ops::linear_backward_input(pass.context(), pass.backward(0), pass.weight(0),
                                   rows(pass.input_gradient));
  }
  template <class Place, class T>
  void backward_weight(int unit, ts::Pass<Place, T>& pass) const {
    if (unit == 0)
      return ts::ops::embedding_backward(pass.context(), pass.tokens, pass.output_gradient,
                                         pass.backward_statistic(0),
                                         /*fresh=*/true, pass.gradient(0), {});
    ts::ops::linear_backward_weight(pass.context(), pass.saved(1), pass.saved(2), pass.gradient(2),
                                    pass.gradient(3));
    ts::ops::linear_backward_weight(pass.context(), rows(pass.input), pass.backward(0), pass.gradient(0),
                                    pass.gradient(1));
  }

 private:
  template <class T, class Place>
  static ts::Tensor<T, Place> rows(ts::Tensor<T, Place> tensor) {
    return tensor.reshaped({tensor.shape().rows(), tensor.shape().columns()});
  }
};

template <class... Policies>
double train(ts::TokenSource const& source, int ranks) {
  double first = 0.0, last = 0.0;
  ts::run(ranks, [&](ts::comm::Comm comm) {
    ts::Trainer<Bigram, Policies...> trainer(Bigram(), comm,
                                             {.learning_rate = 1e-2, .batch = 4, .sequence = 32});
    ts::Loader loader(source, {.batch = 4, .sequence = 32, .rank = comm.rank(), .world = comm.world()});
    for (int index = 0; index < 60; ++index) {
      ts::StepReport step = trainer.step(loader.load(index));
      if (comm.is_root()) (index == 0 ? first : last) = step.loss;
    }
  });
  std::cout << "loss " << first << " -> " << last << '\n';
  return first - last;
}

int main(int argc, char** argv) try {
  ts::testing::GradientReport const gradients =
      ts::testing::check_gradients(Bigram(), {.batch = 1, .sequence = 5});
  std::cout << gradients;
  auto const source = ts::TokenSource::open(argc > 1 ? argv[1] : ts::default_data_path);
  bool const plain = train<>(source, 1) > 1.0;
  bool const sharded = train<ts::ZeroStage<3>, ts::Precision<ts::bfloat16>>(source, 2) > 1.0;
  return gradients.right() && plain && sharded ? 0 : 1;
} catch (std::exception const& error) {
  std::cerr << "error: " << error.what() << '\n';
  return 1;
}
