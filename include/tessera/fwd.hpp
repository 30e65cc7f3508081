// SPDX-License-Identifier: Apache-2.0
// Forward-declares every public type, for code that only needs the names of types. Type aliases and concepts
// (such as Trainer and Model) are only in the headers that define them.
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {

// core/
struct half;
struct bfloat16;
struct tf32;
struct bf16x6;
struct bf16x3;
enum class DType : std::uint8_t;
enum class ErrorKind;
class Error;
class Word;
class PeerLost;
enum class Lane : std::uint8_t;
struct Operation;
class Recorder;
class EntryTimer;
template <class Place>
class Context;
struct PhiloxCounter;
struct PhiloxKey;
struct Cpu;
struct Cuda;
struct Nvme;
enum class Tier : std::uint8_t;
enum class Device : std::uint8_t;
struct DeviceInfo;
struct TierInfo;
class Shape;

// policy/
namespace slot {
struct device;
struct sharding;
struct precision;
struct loss_scale;
struct offload;
struct recompute;
struct reduction;
struct communication;
struct capture;
struct attention;
struct parallel;
struct adapters;
}  // namespace slot
struct Auto;
struct Reference;
struct Fused;
struct Cudnn;
template <class How>
struct Attention;
struct Eager;
struct Graph;
template <class How>
struct Capture;
struct Tuned;
template <class How>
struct Communication;
template <class Place>
struct On;
struct Dynamic;
struct Static;
template <class How>
struct LossScale;
template <class Place>
struct Optimizer;
template <class Place>
struct Parameters;
struct AllState;
template <class... Parts>
struct Offload;
template <class T>
struct Precision;
struct Gelu;
struct Block;
struct Every;
template <class What>
struct Recompute;
struct Fast;
struct Ordered;
template <class How>
struct Reduction;
template <int N>
struct ZeroStage;
struct RootOptimizer;
template <class Mistake>
struct Refused;
template <class... Ps>
struct Resolved;
template <class Fault, class... Ps>
struct ResolvedFor;
template <class... Named>
struct Parallel;
template <class What>
struct Adapters;
struct Lora;
struct None;
enum class Sharding : std::uint8_t;
enum class LossScaleKind : std::uint8_t;
enum class RecomputeKind : std::uint8_t;
enum class ReductionKind : std::uint8_t;
enum class CommunicationKind : std::uint8_t;
enum class CaptureKind : std::uint8_t;
enum class AttentionKind : std::uint8_t;
enum class AdapterKind : std::uint8_t;
struct DTypes;
struct Placement;
struct PlacementTable;
struct Axes;
struct SlotNames;
struct RecipeTable;
template <class... Policies>
struct Config;

namespace axis {
struct Data;
struct Tensor;
struct Pipeline;
}  // namespace axis

// tensor/
template <class Memory>
class Arena;
struct AddressSpace;
struct HostMemory;
template <class T, class Place>
class Tensor;
template <class T, class Place>
class Array;

// comm/
namespace comm {
struct CollectiveId;
struct ProcessGroup;
struct Request;
struct Traffic;
class Transport;
class Single;
class RecordingTransport;
class Comm;
struct LaunchEnvironment;
struct ThreadsOptions;
class Threads;
struct Member;
struct Progress;
struct Fault;
struct LaunchOptions;
class Launch;
class Messages;
class Processes;
struct HostLink;
class Mpi;
struct NcclOptions;
class Nccl;
}  // namespace comm

struct RunOptions;

// ops/
struct ContextOptions;
template <class Place>
class OwningContext;
namespace ops {
struct Llama3Scaling;
template <class P, class T>
class RowSumBatch;
}  // namespace ops

// nn/
class Gpt2;
struct Gpt2Options;
class Llama;
struct LlamaOptions;
class Opt;
struct OptOptions;
struct MicroBatch;
struct Init;
struct Split;
struct ParameterSpec;
struct Borrow;
struct ActivationSpec;
struct Boundary;
struct UnitSpec;
struct LoraOptions;
namespace backend {
template <class Place>
struct InitialValues;
}
template <class Place, class T>
struct AdapterFunctions;
template <class Place, class T>
struct UnitFunctions;
template <class Place, class T>
struct Pass;

namespace nn {
class Unit;
struct Weight;
struct Saved;
struct SavedStatistic;
struct Backward;
struct BackwardStatistic;
struct Adapter;
struct LayerNorm;
struct LinearSpec;
struct Linear;
struct CausalAttention;
struct Mlp;
struct Embedding;
struct Classifier;
struct RmsNorm;
struct AttentionSpec;
struct ProjectedAttention;
struct GatedMlp;
template <class Layers>
struct TransformerBlock;
template <class Layers>
struct TransformerHead;
template <class Layers>
class Transformer;
struct Gpt2Layers;
struct LlamaLayers;
struct OptLayers;
}  // namespace nn

// optim/
struct AdamWOptions;
struct OptimizerState;
template <class S>
struct AdamWFactors;
struct LossScaleOptions;
struct StepRule;
enum class RateShape : std::uint8_t;
struct RateSchedule;
struct StepState;
struct NormRange;
struct LossSum;
struct RankNotes;
struct StepShares;

// data/
struct Batch;
struct LoaderOptions;
class Loader;
class FileBytes;
enum class Order : std::uint8_t;
struct BatchSplit;
class SampleOrder;
enum class TokenFormat : std::uint8_t;
struct Record;
struct TokenOptions;
struct TokenLayout;
class TokenSource;

namespace files {
class Descriptor;
struct Destination;
class FileReader;
}  // namespace files

namespace data {
class TokenBatches;
}  // namespace data

// io/
struct IoRequest;
class IoEngine;
class IoThreads;
struct IoPattern;
struct NvmeOptions;
class NvmeFile;
class StateFile;
class AtomicFile;
struct PlannedFile;
struct HubValue;
class HubConfig;
class AdapterWeights;
class AdapterWriter;
class ModelFolderWriter;
class ModelWeights;
struct WeightNames;
class WeightsWriter;
class WeightsHash;
class LlmcFile;
class SafetensorsFile;
enum class WeightsFormat : std::uint8_t;
struct SafetensorsSpec;
struct SafetensorsLayout;
class SafetensorsWriter;
struct SafetensorsType;
struct SafetensorsEntry;
struct SafetensorsHeader;
struct StepRecord;
class JsonlLog;
enum class SamplesAre : std::uint8_t;
struct RecordOptions;

namespace json_lines {
struct FieldReader;
}  // namespace json_lines

// plan/
struct Range;
struct UnitLayout;
struct FlatLayout;
struct Piece;
struct Flat;
struct Interval;
struct IntervalPlan;
enum class CheckpointMemory : std::uint8_t;
struct SaveStaging;
struct StepShape;
struct Buffer;
struct Program;
struct FileTraffic;
struct StepRow;
struct StepTable;
struct StepPlan;
struct MemoryCategory;
struct MemoryReport;
struct MemoryLimit;
class CheckedRecipe;
struct Footprint;
struct Advice;
class Deadline;
struct Largest;
enum class Group : std::uint8_t;
enum class Move : std::uint8_t;
enum class Verb : std::uint8_t;
struct Hop;
struct RouteOptions;
enum class BufferKind : std::uint8_t;
enum class Role : std::uint8_t;
enum class Access : std::uint8_t;
struct Operand;
struct Copy;
struct Entry;
struct Item;
struct Schedule;
struct Instance;

// store/
template <class Place>
class StepMemory;
template <class Place, class T>
class ParameterStore;
template <class Place>
class WeightAccess;

// train/
class AnyModel;
struct HubFormat;
struct ModelFamily;
struct ModelKey;
struct ModelSpec;
struct NamedModel;
class AnyTrainer;
class AsyncCheckpoint;
struct CheckpointInfo;
struct CheckpointOptions;
class Checkpoints;
class StateAccess;
struct FileUse;
struct DeviceFacts;
class ProductPlans;
class StepTrace;
template <class Place, class T>
struct ErasedModel;
template <class Place, class T>
class Engine;
template <class Place, class T>
class Executor;
struct TrainerOptions;
enum class BindThreads : std::uint8_t;
struct Option;
class OptionValue;
enum class OptionGroup : std::uint8_t;
enum class OptionRule : std::uint8_t;
struct StepReport;
class PendingStep;
class Ticket;
template <class M, class Recipe>
class BasicTrainer;

// loop/
struct LoopTask;
struct IsolatedSteps;
struct TrainingLoopOptions;
class TrainingLoop;

// testing/
namespace testing {
struct GradientDifference;
struct GradientReport;
}  // namespace testing

}  // namespace v0
}  // namespace tessera
