// SPDX-License-Identifier: Apache-2.0
// Defines a custom model, checks its gradients, and trains it twice: on one rank with the default policies,
// and on two ranks with ZeRO stage 3 in bfloat16. The model has one hidden layer and predicts the next byte
// from the last byte. It consists of two units: unit 0 is the embedding table, and unit 1 is the hidden layer
// with the output layer. The class of a model lists the layers of each unit and defines the computation of
// each unit. A model does not depend on policies. Run this program as minimal_own_model [FILE OR FOLDER]; the
// argument is the training text.
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
  std::int64_t positions() const { return 1 << 20; }  // any length is possible: one token suffices to predict

  std::vector<ts::UnitSpec> units(ts::MicroBatch shape) const {
    return {table_unit_.at(shape, "table"), head_unit_.at(shape, "head")};
  }

  template <class Place, class T>
  void forward(int unit, ts::Pass<Place, T>& pass) const {
    if (unit == 0) return table_.forward(pass);
    fc_.forward(pass, pass.input, pass[hidden_], {.activation = ts::Activation::gelu, .pre = pass[pre_]});
    out_.forward(pass, pass[hidden_]);  // computes the loss, and replaces the logits by their gradient
  }
  template <class Place, class T>
  void recompute(int, ts::Pass<Place, T>&) const {}
  template <class Place, class T>
  void backward_input(int unit, ts::Pass<Place, T>& pass) const {
    if (unit == 0) return;
    out_.backward_input(pass, pass[d_pre_], {.activation = ts::Activation::gelu, .pre = pass[pre_]});
    fc_.backward_input(pass, pass[d_pre_], pass.input_gradient);
  }
  template <class Place, class T>
  void backward_weight(int unit, ts::Pass<Place, T>& pass) const {
    if (unit == 0) return table_.backward_weight(pass);
    out_.backward_weight(pass, pass[hidden_]);
    fc_.backward_weight(pass, pass.input, pass[d_pre_]);
  }

 private:
  static constexpr std::int64_t v = 256, c = 32, h = 64;
  static constexpr ts::Init wide = ts::Init::normal(0.1);

  ts::nn::Unit table_unit_, head_unit_;
  ts::nn::Embedding table_{table_unit_, {"table.weight", {v, c}, wide, true}, {}, /*tied=*/false};
  ts::nn::Linear fc_{head_unit_, "fc", c, h, {.init = wide}};
  ts::nn::Saved pre_ = head_unit_.saved("pre", ts::nn::per_token(h));
  ts::nn::Saved hidden_ = head_unit_.saved("hidden", ts::nn::per_token(h));
  ts::nn::Classifier out_{head_unit_, {head_unit_, "out", h, v, {.init = wide}}, v, v};
  ts::nn::Backward d_pre_ = head_unit_.backward("d_pre", ts::nn::per_token(h));
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
