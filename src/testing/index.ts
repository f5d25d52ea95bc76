export { assertIdempotencyCoverage, type CoverageOptions } from './coverage';
export { SettableClock } from './clock';
export {
  storageContract,
  type AnotherStorage,
  type StorageContractOptions,
  type StorageUnderTest,
  type TestFunction,
} from './storage-contract';
export { duplicate } from './duplicate';
export { FaultyStorage, type StorageCall, type StorageFault, type StorageMethod } from './faulty-storage';
